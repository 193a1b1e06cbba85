package nn_test

import (
	"math"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/numtest"
	"spillway/nn"
	"spillway/op"
	"spillway/quant"
	"spillway/spec"
	"spillway/spec/spectest"
)

// traced is a model with random numbers for all it reads; integers count up to classes.
func traced(t *testing.T, m nn.Model, c graph.Config, classes int32) (*spec.Model, spectest.Inputs) {
	t.Helper()
	s, err := spec.Trace("model", "test", m, c)
	if err != nil {
		t.Fatal(err)
	}
	in := spectest.Inputs{Params: map[string]op.Array{}, Batch: map[string]op.Array{}}
	for i, p := range s.Params {
		in.Params[p.Name] = numtest.Random(p.Type, uint64(i+1))
	}
	for i, p := range s.Batch {
		a := numtest.Random(p.Type, uint64(100+i))
		for k := range a.I {
			a.I[k] = int32(k*5+i) % classes
		}
		in.Batch[p.Name] = a
	}
	return s, in
}

func result(t *testing.T, m *spec.Model, in spectest.Inputs) []float64 {
	t.Helper()
	out, err := spectest.Forward(m, in)
	if err != nil {
		t.Fatal(err)
	}
	return out[0].F
}

// A classifier of three layers, written out by hand.
func TestSequentialIsItsFormula(t *testing.T) {
	net := nn.NewSequential(nn.NewLinear(4, 6), nn.Tanh, nn.NewLayerNorm(6, 1e-5), nn.Dropout(0.5), nn.NewLinear(6, 3))
	net.Input, net.Loss = []int64{4}, nn.CrossEntropy
	c := graph.Config{MicroBatchSize: 5, Seq: 1, DType: dtype.F32, Task: graph.Eval}
	m, in := traced(t, net, c, 3)
	if len(m.Blocks) != 3 {
		t.Errorf("%d blocks, want one for each layer with weights", len(m.Blocks))
	}
	var want float64
	for s := range 5 {
		x := product(in.Params, "0", in.Batch["input"].F[s*4:][:4])
		for i := range x {
			x[i] = math.Tanh(x[i])
		}
		y := product(in.Params, "4", normed(in.Params, "2", x))
		var sum float64
		for _, v := range y {
			sum += math.Exp(v)
		}
		want += math.Log(sum) - y[in.Batch["targets"].I[s]]
	}
	want *= in.Batch["scale"].F[0]
	if got := result(t, m, in)[0]; math.Abs(got-want) > 1e-12 {
		t.Errorf("the loss is %v, by hand %v", got, want)
	}
}

func product(params map[string]op.Array, name string, x []float64) []float64 {
	w, y := params[name+".weight"].F, params[name+".bias"].Clone().F
	for o := range y {
		for i, v := range x {
			y[o] += w[o*len(x)+i] * v
		}
	}
	return y
}

func normed(params map[string]op.Array, name string, x []float64) []float64 {
	var mean, square float64
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = (v-mean)/math.Sqrt(square+1e-5)*params[name+".weight"].F[i] + params[name+".bias"].F[i]
	}
	return y
}

// The whole stack as one layer gives what its blocks give one after another.
func TestEncoderIsTheChainOfItsBlocks(t *testing.T) {
	c := nn.EncoderConfig{Width: 8, Heads: 2, Inner: 12, Layers: 3, Func: nn.GELU, Eps: 1e-5, FinalNorm: true, NoBias: true, Masks: nn.EncoderMasks{Causal: true}}
	chain := nn.NewTransformerEncoder(c)
	whole := &nn.Sequential{Layers: []nn.Layer{chain}, Input: []int64{5, 8}, Loss: nn.MeanSquare}
	run := graph.Config{MicroBatchSize: 2, Seq: 5, DType: dtype.F32, Task: graph.Infer}
	m, in := traced(t, chain, run, 1)
	got := result(t, m, in)
	for name, p := range in.Params { // in a Sequential it is layer 0
		in.Params["0."+name] = p
	}
	s, err := spec.Trace("whole", "test", whole, run)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Blocks) != 1 || len(m.Blocks) != 3 {
		t.Errorf("%d and %d blocks, want 1 and 3", len(s.Blocks), len(m.Blocks))
	}
	if d := numtest.Compare(got, result(t, s, in)); d.Max > 0 {
		t.Errorf("they differ by %v", d)
	}
}

// A constant causal mask is the additive mask with -inf above the diagonal.
func TestCausalIsAMask(t *testing.T) {
	c := nn.EncoderConfig{Width: 4, Heads: 2, Inner: 6, Layers: 1, Func: nn.ReLU, Eps: 1e-5}
	run := graph.Config{MicroBatchSize: 2, Seq: 5, DType: dtype.F32, Task: graph.Infer}
	c.Masks = nn.EncoderMasks{Scores: true}
	m, in := traced(t, nn.NewTransformerEncoder(c), run, 1)
	for i := range in.Batch["mask"].F {
		in.Batch["mask"].F[i] = 0
		if i%5 > i/5 {
			in.Batch["mask"].F[i] = math.Inf(-1)
		}
	}
	want := result(t, m, in)
	c.Masks = nn.EncoderMasks{Causal: true}
	m, _ = traced(t, nn.NewTransformerEncoder(c), run, 1)
	if d := numtest.Compare(result(t, m, in), want); d.Max > 1e-12 {
		t.Errorf("they differ by %v", d)
	}
}

// Frozen weights may rest in another type than is computed with; trained ones in no
// block format.
func TestStorage(t *testing.T) {
	net := &nn.Sequential{Layers: []nn.Layer{nn.NewLinear(4, 6)}, Input: []int64{4}, Loss: nn.MeanSquare}
	weight := net.Layers[0].(*nn.Linear).Weight
	for _, c := range []struct {
		storage  dtype.Type
		outliers float64
		rows     int64
		want     op.Kind
	}{
		{dtype.BF16, 0, 4, op.Cast}, {dtype.F32, 0, 4, op.MatMul},
		{quant.NF4, 0, 17, op.Dequantize}, {quant.NF4, 0, 16, op.QuantizedMatmul}, // few rows read the codes
		{quant.RowI8, 0, 17, op.Dequantize}, {quant.RowI8, 6, 17, op.QuantizedMatmul},
	} {
		weight.Storage, weight.Frozen, weight.OutlierThreshold = c.storage, true, c.outliers
		m, err := spec.Trace("stored", "test", net, graph.Config{MicroBatchSize: c.rows, Seq: 1, DType: dtype.F32, Task: graph.Train})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Program(0).Nodes[0].Kind; got != c.want || m.Params[0].Type.DType != c.storage {
			t.Errorf("%d rows: stored as %v it is read by %v as %v, want %v", c.rows, c.storage, got, m.Params[0].Type, c.want)
		}
	}
	weight.Storage, weight.Frozen, weight.OutlierThreshold = quant.NF4, false, 0
	if _, err := spec.Trace("stored", "test", net, config); err == nil {
		t.Error("a trained weight is stored in 4 bits")
	}
}

// A layer of a model that computes in 16 bits takes real numbers of another type, as under PyTorch's autocast: they are rounded first.
func TestLayersCastTheirInputs(t *testing.T) {
	build := func(input func(b *graph.Builder) graph.Value) []float64 {
		l := nn.NewLinear(5, 4)
		m := &oneBlock{l, func(b *graph.Builder) graph.Value { return l.Forward(b, input(b)) }}
		s, in := traced(t, m, graph.Config{MicroBatchSize: 2, Seq: 1, DType: dtype.BF16, Task: graph.Infer}, 1)
		return result(t, s, in)
	}
	wide := func(b *graph.Builder) graph.Value { return floats(b, 2, 5) }
	same(t, "a layer of f32", build(wide), build(func(b *graph.Builder) graph.Value { return b.Cast(wide(b), b.DType) }))
}
