package spillway_test

import (
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/graph"
	"spillway/lora"
	"spillway/nn"
	"spillway/quant"
)

// castNet has layers that are cast and a norm that is not.
type castNet struct {
	Conv *nn.Conv          `hf:"conv"`
	Norm *nn.GroupNorm     `hf:"norm"`
	Up   *nn.ConvTranspose `hf:"up"`
	Head *nn.Linear        `hf:"head"`
}

func newCastNet() *castNet {
	return &castNet{nn.NewConv2d(3, 8, 3).Strided(1, 1), nn.NewGroupNorm(2, 8), nn.NewConvTranspose(8, 4, 1, 2, 2), nn.NewLinear(4, 5)}
}

func (n *castNet) Blocks() []nn.Block {
	return []nn.Block{
		{Name: "conv", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
			return []graph.Value{n.Norm.Forward(b, n.Conv.Forward(b, nn.Input(b, 6, 6, 3)))}
		}},
		{Name: "up", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			return []graph.Value{nn.ReLU.Forward(b, n.Up.Forward(b, in[0]))}
		}},
		{Name: "head", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			return []graph.Value{b.Cast(n.Head.Forward(b, b.Mean(in[0], 1, 2)), dtype.F32)}
		}},
	}
}

// Layers whose weights are held in 8-bit floats compute with what PyTorch's weight.to(float8_e4m3fn).to(dtype) gives, in a byte for
// each number, and streamed as resident.
func TestLayerwiseCasting(t *testing.T) {
	x := make([]float32, 2*6*6*3)
	for i := range x {
		x[i] = float32(i%11)/5 - 1
	}
	batch := spillway.Batch{"input": spillway.Floats(x, 2, 6, 6, 3)}
	for _, precision := range []dtype.Type{dtype.F32, dtype.BF16} {
		c := described(t)
		c.Task, c.Precision = spillway.Infer, precision
		by := wrap(t, newCastNet(), c)
		dict := stateDict(t, by)
		for name, w := range dict {
			for i, f := range w.Floats {
				if !strings.HasPrefix(name, "norm.") {
					w.Floats[i] = dtype.FromF8E4M3(dtype.ToF8E4M3(f))
				}
			}
		}
		if err := by.LoadStateDict(dict); err != nil {
			t.Fatal(err)
		}
		want, err := by.Forward(batch)
		if err != nil {
			t.Fatal(err)
		}
		var stored int64
		for _, m := range by.MemoryStats().Modules {
			stored += m.Weights.Device
		}
		for _, strategy := range []string{"", "cpu-offload"} {
			c.Adapters, c.Strategy = lora.Options{Base: quant.E4M3}, strategy
			w := wrap(t, newCastNet(), c)
			got, err := w.Forward(batch)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Floats, want.Floats) {
				t.Errorf("%v, %s: %v, of weights that were rounded before %v", precision, strategy, got.Floats, want.Floats)
			}
			var bytes int64
			for _, m := range w.MemoryStats().Modules {
				bytes += m.Weights.Device + m.Weights.Host
			}
			if most := stored/precision.Bytes(1) + 4*64*16; strategy == "" && bytes > most {
				t.Errorf("%v: the weights take %d bytes, %d in the type that is computed in", precision, bytes, stored)
			}
		}
	}
	c := described(t)
	c.Adapters = lora.Options{Base: quant.E4M3}
	if _, err := spillway.Wrap(newCastNet(), c); err == nil || !strings.Contains(err.Error(), "only run") {
		t.Errorf("training with weights in 8 bits: %v", err)
	}
	if err := quant.Encode(quant.E4M3, make([]byte, 1), []float32{500}, 1); err == nil || !strings.Contains(err.Error(), "448") {
		t.Errorf("a number that is too large: %v", err)
	}
}
