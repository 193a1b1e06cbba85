package cpu

import (
	"math"
	"testing"

	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/quant"
	"spillway/shape"
)

// linear8 is a codec of optimizer state as a program adds one: 127ths of the largest magnitude
// of a block. Its registration is all there is of it.
var linear8 = quant.RegisterState(quant.StateCodec{Name: "linear8", Alias: "lin8", Title: "8 bits, linear", Signed: quant.StateCode{
	Encode: func(codes []byte, src []float32) float32 {
		most := quant.AbsMax(src)
		for i, f := range src {
			codes[i] = 0
			if most > 0 {
				codes[i] = byte(int8(math.RoundToEven(float64(f / most * 127))))
			}
		}
		return most
	},
	Decode: func(dst []float32, codes []byte, scale float32) {
		for i, c := range codes {
			dst[i] = float32(int8(c)) * scale / 127
		}
	},
}})

// A codec that was registered is known by the names of optimizers, by the rules of updates, by
// their test cases, which TestConformance runs, and by the CPU.
func TestRegisteredStateCodec(t *testing.T) {
	config, err := optim.Parse("paged_adamw_lin8:lr=1e-3")
	must(t, err)
	if text := config.String(); text != "adamw_lin8" || config.Storage != linear8 {
		t.Errorf("it is %s with states in %v", text, config.Storage)
	}
	statesFor, err := config.StatesFor(nil)
	must(t, err)
	for _, s := range statesFor("w", shape.Of(128, 64)) {
		if s.Type.DType != linear8 || s.Bytes() != 128*64+4*128*64/quant.StateBlock {
			t.Errorf("state %s is %v in %d bytes", s.Name, s.Type, s.Bytes())
		}
	}
	for _, s := range statesFor("w", shape.Of(64)) { // too few for 8 bits
		if s.Type.DType != dtype.F32 {
			t.Errorf("state %s of 64 elements is %v", s.Name, s.Type)
		}
	}
	cases := 0
	for _, c := range op.Cases(dtype.F32) {
		for _, in := range c.Call.In {
			if in.DType == linear8 {
				cases++
				break
			}
		}
	}
	if cases == 0 {
		t.Error("no case of an update has states of the codec")
	}
	followsF32(t, config)
}

// followsF32 makes thirty steps with the states of the codec next to thirty with states in f32.
func followsF32(t *testing.T, config optim.Config) {
	t.Helper()
	const n = 1031
	d := Open(Options{Threads: 2, Limit: 64 << 20})
	defer d.Close()
	q := openQueue(t, d)
	defer q.Close()
	var weights [2][]float32
	for k, states := range [][]dtype.Type{{dtype.F32, dtype.F32}, {linear8, linear8}} {
		l, kernel, memory := adamLaunch(t, d, n, dtype.F32, states...)
		for iteration := 1; iteration <= 30; iteration++ {
			scalars, err := config.Scalars(iteration, config.LR, true)
			must(t, err)
			l.Args.Scalars = scalars
			view[float32](l.Buffers[4])[0] = 1
			for i := range view[float32](l.Buffers[1]) {
				view[float32](l.Buffers[1])[i] = float32(1+i%3) / 4
			}
			must(t, q.Launch(kernel, l))
			must(t, q.Sync())
		}
		weights[k] = append([]float32(nil), view[float32](l.Buffers[0])...)
		must(t, memory.Free())
	}
	for i, want := range weights[0] {
		if got := weights[1][i]; math.Abs(float64(got-want)) > 0.1*math.Abs(float64(want)) {
			t.Fatalf("weight %d is %v after 30 steps, with states in f32 %v", i, got, want)
		}
	}
}
