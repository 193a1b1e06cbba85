package spillway_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/optim"
)

// lossNet is a linear layer that ends in a loss.
type lossNet struct {
	Linear *nn.Linear `hf:""`
	loss   func(b *graph.Builder, y graph.Value) graph.Value
}

func (n *lossNet) Blocks() []nn.Block {
	return []nn.Block{{Name: "linear", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		y := n.Linear.Forward(b, nn.Input(b, 5))
		if b.Task == graph.Infer {
			return []graph.Value{b.Results([]string{"left", "right"}, b.Slice(y, 1, 0, 1, 1), b.Reshape(b.Slice(y, 1, 1, 4, 1), b.MicroBatchSize, 3, 1))}
		}
		return []graph.Value{n.loss(b, y)}
	}}}
}

// Losses give PyTorch's numbers and gradients, also where a batch is cut into micro-batches.
func TestLossesAgreeWithPyTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/reference/losses.json")
	if err != nil {
		t.Fatal(err)
	}
	var reference struct {
		Batch        map[string][]float32
		Weight, Bias []float32
		Cases        []struct {
			Name         string
			Loss         float64
			Weight, Bias []float32
		}
	}
	if err := json.Unmarshal(text, &reference); err != nil {
		t.Fatal(err)
	}
	part := func(name string) func(b *graph.Builder) graph.Value {
		return func(b *graph.Builder) graph.Value { return b.Part(name, dtype.F32, b.MicroBatchSize, 4) }
	}
	target, share := part("target"), part("share")
	classWeights := []float32{0.5, 1, 2, 0.25}
	type build = func(b *graph.Builder, y graph.Value) graph.Value
	mean := func(of func(b *graph.Builder, y graph.Value) graph.Value) build {
		return func(b *graph.Builder, y graph.Value) graph.Value { return nn.Mean(b, of(b, y)) }
	}
	losses := map[string]struct {
		loss  build
		reads string
	}{
		"mse":             {mean(func(b *graph.Builder, y graph.Value) graph.Value { return nn.SquaredError(b, y, target(b)) }), "target"},
		"l1":              {nn.MeanAbsolute.Forward, "target"},
		"huber":           {mean(func(b *graph.Builder, y graph.Value) graph.Value { return nn.Huber(b, y, target(b), 0.7) }), "target"},
		"smooth_l1":       {mean(func(b *graph.Builder, y graph.Value) graph.Value { return nn.SmoothL1(b, y, target(b), 0.5) }), "target"},
		"bce_with_logits": {mean(func(b *graph.Builder, y graph.Value) graph.Value { return nn.BCEWithLogits(b, y, share(b), nil) }), "share"},
		"bce_pos_weight": {mean(func(b *graph.Builder, y graph.Value) graph.Value {
			return nn.BCEWithLogits(b, y, share(b), classWeights)
		}), "share"},
		"bce": {mean(func(b *graph.Builder, y graph.Value) graph.Value {
			return nn.BCE(b, nn.Sigmoid.Forward(b, y), share(b))
		}), "share"},
		"cross_entropy": {func(b *graph.Builder, y graph.Value) graph.Value {
			return nn.CrossEntropyOf(b, y, nn.CrossEntropyOptions{})
		}, "targets"},
		"smoothing": {func(b *graph.Builder, y graph.Value) graph.Value {
			return nn.CrossEntropyOf(b, y, nn.CrossEntropyOptions{Smoothing: 0.2})
		}, "targets"},
		"weights": {func(b *graph.Builder, y graph.Value) graph.Value {
			return nn.CrossEntropyOf(b, y, nn.CrossEntropyOptions{Weights: classWeights})
		}, "targets"},
		"weights_smoothing": {func(b *graph.Builder, y graph.Value) graph.Value {
			return nn.CrossEntropyOf(b, y, nn.CrossEntropyOptions{Weights: classWeights, Smoothing: 0.2})
		}, "targets"},
		"distillation": {mean(func(b *graph.Builder, y graph.Value) graph.Value { return nn.Distillation(b, y, target(b), 2) }), "target"},
		"contrastive": {func(b *graph.Builder, y graph.Value) graph.Value {
			return nn.Contrastive(b, b.Slice(y, 1, 0, 2, 1), b.Slice(y, 1, 2, 4, 1), b.Floats("logit scale", []float32{3}))
		}, ""},
		"flow": {func(b *graph.Builder, y graph.Value) graph.Value { return nn.FlowLoss(b, y) }, "data noise"},
		"dpo": {mean(func(b *graph.Builder, y graph.Value) graph.Value {
			column := func(i int64) graph.Value { return b.Reshape(b.Slice(y, 1, i, i+1, 1), b.MicroBatchSize) }
			return nn.DPO(b, column(0), column(1), b.Floats("chosen", []float32{0.3}), b.Floats("rejected", []float32{-0.2}), 0.5, 0.1)
		}), ""},
	}
	for _, c := range reference.Cases {
		l, ok := losses[c.Name]
		if !ok {
			t.Errorf("%s is not tried", c.Name)
			continue
		}
		b := spillway.Batch{"input": spillway.Floats(reference.Batch["input"], 6, 5)}
		for _, name := range strings.Fields(l.reads) {
			if b[name] = spillway.Floats(reference.Batch[name], 6, 4); name == "targets" {
				ids := spillway.Ints(nil, 6)
				for _, v := range reference.Batch[name] {
					ids.Ints = append(ids.Ints, int32(v))
				}
				b[name] = ids
			}
		}
		for _, micro := range []int{1, 3} {
			config := described(t)
			config.MicroBatches = micro
			net := wrap(t, &lossNet{nn.NewLinear(5, 4), l.loss}, config)
			if err := net.LoadStateDict(spillway.StateDict{"weight": spillway.Floats(reference.Weight, 4, 5), "bias": spillway.Floats(reference.Bias, 4)}); err != nil {
				t.Fatal(c.Name, err)
			}
			loop := loopOf(t, net)
			loss, err := loop.Backward(b)
			if micro > 1 && (strings.Contains(c.Name, "weights") || c.Name == "contrastive") { // not a mean over samples
				if err == nil || !strings.Contains(err.Error(), "its loss is of all samples of a batch together") {
					t.Errorf("%s in %d micro-batches: %v", c.Name, micro, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(c.Name, err)
			}
			if math.Abs(loss-c.Loss) > 1e-5*math.Abs(c.Loss) {
				t.Errorf("%s: the loss is %v, PyTorch's %v", c.Name, loss, c.Loss)
			}
			for name, want := range map[string][]float32{"weight": c.Weight, "bias": c.Bias} {
				g, err := loop.Gradient(name)
				if err != nil {
					t.Fatal(err)
				}
				for i, f := range want {
					if d := math.Abs(float64(g.Floats[i] - f)); d > 1e-5*math.Max(0.1, math.Abs(float64(f))) {
						t.Errorf("%s, %d micro-batches: gradient %s[%d] is %v, PyTorch's %v", c.Name, micro, name, i, g.Floats[i], f)
						break
					}
				}
			}
		}
	}
}

// A model with several outputs gives each by its name.
func TestModelsWithSeveralOutputs(t *testing.T) {
	net := wrap(t, &lossNet{nn.NewLinear(5, 4), nn.MeanSquare.Forward}, described(t))
	in := spillway.Batch{"input": spillway.Floats(make([]float32, 15), 3, 5)}
	for i := range 15 {
		in["input"].Floats[i] = float32(i)
	}
	all, err := net.Forward(in)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := net.ForwardAll(in)
	if err != nil {
		t.Fatal(err)
	}
	left, right := parts["left"], parts["right"]
	if !left.Shape.Equal([]int64{3, 1}) || !right.Shape.Equal([]int64{3, 3, 1}) {
		t.Fatalf("shapes %v and %v", left.Shape, right.Shape)
	}
	for r := range 3 {
		if left.Floats[r] != all.Floats[4*r] || right.Floats[3*r+2] != all.Floats[4*r+3] {
			t.Errorf("sample %d: %v and %v of %v", r, left.Floats, right.Floats, all.Floats)
		}
	}
}

// A loss that is not divided by the samples of the whole batch is computed of a batch in one piece, so that a mean of one's
// own is that of the batch.
func TestOwnMeansAreOfTheWholeBatch(t *testing.T) {
	own := func(b *graph.Builder, y graph.Value) graph.Value { return b.Mean(b.Unary(op.Square, y), 0, 1) }
	right := func(b *graph.Builder, y graph.Value) graph.Value { return nn.Mean(b, b.Unary(op.Square, y)) }
	in := spillway.Batch{"input": spillway.Floats(make([]float32, 1024*5), 1024, 5)}
	for i := range in["input"].Floats {
		in["input"].Floats[i] = float32(i%7) - 3
	}
	losses := map[bool]float64{}
	for _, mine := range []bool{true, false} {
		c, loss := described(t), right
		if mine {
			loss = own
		}
		w := wrap(t, &lossNet{nn.NewLinear(5, 4), loss}, c)
		losses[mine] = step(t, w, in, 1)[0]
		c.MicroBatches = 4
		_, err := wrap(t, &lossNet{nn.NewLinear(5, 4), loss}, c).Step(in)
		if refused := err != nil && strings.Contains(err.Error(), "does not end in nn.Mean with every term"); refused != mine {
			t.Errorf("a mean of one's own %v in 4 micro-batches: %v", mine, err)
		}
		// Where memory is short, no advice is to cut what cannot be cut.
		c.MicroBatches, c.MaxMemory = 1, fmt.Sprint(w.MemoryStats().Devices[0].Peak/2)
		_, err = wrap(t, &lossNet{nn.NewLinear(5, 4), loss}, c).Step(in)
		if err == nil || strings.Contains(err.Error(), "micro-batches of") == mine {
			t.Errorf("a mean of one's own %v within %s bytes: %v", mine, c.MaxMemory, err)
		}
	}
	if math.Abs(losses[true]-losses[false]) > 1e-6*losses[false] {
		t.Errorf("a mean of one's own is %v, nn.Mean %v", losses[true], losses[false])
	}
}

// balanced has a loss of a block before in addition to that of the last, as routers of experts have.
type balanced struct {
	Hidden *nn.Linear `hf:"hidden"`
	Head   *nn.Linear `hf:"head"`
	aux    func(b *graph.Builder, h graph.Value) graph.Value
	loss   func(b *graph.Builder, mean, aux graph.Value) graph.Value
}

func (m *balanced) Blocks() []nn.Block {
	var c chain
	c.add("hidden", func(b *graph.Builder, _ []graph.Value) []graph.Value {
		h := m.Hidden.Forward(b, nn.Input(b, 5))
		return []graph.Value{h, m.aux(b, h)}
	})
	c.add("head", func(b *graph.Builder, in []graph.Value) []graph.Value {
		return []graph.Value{m.loss(b, nn.Mean(b, b.Unary(op.Square, m.Head.Forward(b, in[0]))), in[1])}
	})
	return c
}

// A loss of which a term is not divided by the samples of the whole batch would count that term once for each micro-batch: such a batch is one.
func TestEachTermOfALossIsOfTheWholeBatch(t *testing.T) {
	type builder = *graph.Builder
	type value = graph.Value
	in := spillway.Batch{"input": spillway.Floats(make([]float32, 32*5), 32, 5)}
	for i := range in["input"].Floats {
		in["input"].Floats[i] = float32(i%7) - 3
	}
	mean := func(b builder, h value) value { return nn.Mean(b, b.Unary(op.Abs, h)) }
	own := func(b builder, h value) value { return b.Mean(b.Unary(op.Abs, h)) }
	sum := func(b builder, mean, aux value) value { return b.Add(mean, b.Scale(aux, 0.3)) }
	for _, c := range []struct {
		name  string
		aux   func(b builder, h value) value
		loss  func(b builder, mean, aux value) value
		whole bool
	}{
		{"means", mean, sum, false},
		{"difference of means", mean, func(b builder, mean, aux value) value { return b.Sub(mean, b.Div(aux, b.Number(aux, 3))) }, false},
		{"a mean of one's own", own, sum, true},
		{"a constant", mean, func(b builder, mean, aux value) value { return b.PlusConstant(mean, 1) }, true},
		{"a product of means", mean, func(b builder, mean, aux value) value { return b.Mul(mean, aux) }, true},
		{"a ratio of means", mean, func(b builder, mean, aux value) value { return b.Div(mean, aux) }, true},
		{"a root", mean, func(b builder, mean, aux value) value { return b.Unary(op.Sqrt, mean) }, true},
		{"the larger one", mean, func(b builder, mean, aux value) value { return b.Maximum(mean, aux) }, true},
	} {
		var losses [2]float64
		for i, micro := range []int{1, 4} {
			conf := described(t)
			conf.MicroBatches = micro
			loss, err := wrap(t, &balanced{nn.NewLinear(5, 4), nn.NewLinear(4, 3), c.aux, c.loss}, conf).Step(in)
			if refused := err != nil && strings.Contains(err.Error(), "is of all samples of a batch together"); refused != (c.whole && micro > 1) || err != nil && !refused {
				t.Errorf("%s in %d micro-batches: %v", c.name, micro, err)
			}
			losses[i] = loss
		}
		if !c.whole && math.Abs(losses[0]-losses[1]) > 1e-6*losses[0] {
			t.Errorf("%s: %v in one, %v in 4 micro-batches", c.name, losses[0], losses[1])
		}
	}
}

// classNet gives classes, which are integers.
type classNet struct {
	Linear *nn.Linear `hf:""`
}

func (n *classNet) Blocks() []nn.Block {
	return []nn.Block{{Name: "linear", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		y := n.Linear.Forward(b, nn.Input(b, 5))
		if b.Task == graph.Infer {
			return []graph.Value{b.ArgMax(y, -1)}
		}
		return []graph.Value{nn.CrossEntropy.Forward(b, y)}
	}}}
}

func TestOutputsMayBeIntegers(t *testing.T) {
	w := wrap(t, &classNet{nn.NewLinear(5, 4)}, described(t))
	weight := make([]float32, 20)
	for i := range 4 {
		weight[i*5+i] = 1 // class i has the number at place i
	}
	if err := w.LoadStateDict(spillway.StateDict{"weight": spillway.Floats(weight, 4, 5), "bias": spillway.Floats(make([]float32, 4), 4)}); err != nil {
		t.Fatal(err)
	}
	got, err := w.Forward(spillway.Batch{"input": spillway.Floats([]float32{0, 0, 5, 0, 9, 7, 0, 5, 0, 9, 0, 0, 0, 1, 9}, 3, 5)})
	if err != nil || !slices.Equal(got.Ints, []int32{2, 0, 3}) || got.Floats != nil {
		t.Errorf("classes %v, floats %v, error %v; want 2, 0, 3", got.Ints, got.Floats, err)
	}
}

// A flow-matching model is asked between noise and data, as far as the time says.
func TestFlowPoint(t *testing.T) {
	w := wrap(t, &flowPoint{nn.NewParam(nn.Constant(2), 3)}, described(t))
	got, err := w.Forward(spillway.Batch{"data": spillway.Floats([]float32{1, 2, 3, 4, 5, 6}, 2, 3), "noise": spillway.Floats([]float32{-1, 0, 1, 0, 8, 2}, 2, 3), "time": spillway.Floats([]float32{0.5, 0.25}, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{0, 2, 4, 2, 14.5, 6}; !slices.Equal(got.Floats, want) {
		t.Errorf("%v, want %v", got.Floats, want)
	}
}

type flowPoint struct {
	Scale *nn.Param `hf:"scale"`
}

func (m *flowPoint) Blocks() []nn.Block {
	return []nn.Block{{Name: "point", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		return []graph.Value{b.Times(nn.FlowPoint(b, 3), m.Scale.Value(b))}
	}}}
}

// A function that PyTorch has numbers for is that function without saying them, and a bound of infinity is none, in a model that trains.
func TestFunctionsHavePyTorchsNumbers(t *testing.T) {
	x := []float32{-30, -2, -0.5, 0, 0.25, 3, 25, math.MaxFloat32}
	for name, f := range map[string]struct {
		of   func(b *graph.Builder, x graph.Value) graph.Value
		want func(x float64) float64
	}{
		"leaky relu": {func(b *graph.Builder, x graph.Value) graph.Value { return b.Unary(op.LeakyReLU, x) }, func(x float64) float64 { return max(x, 0) + 0.01*min(x, 0) }},
		"elu":        {func(b *graph.Builder, x graph.Value) graph.Value { return b.Unary(op.ELU, x) }, func(x float64) float64 { return max(x, 0) + math.Expm1(min(x, 0)) }},
		"softplus": {func(b *graph.Builder, x graph.Value) graph.Value { return b.Unary(op.Softplus, x) }, func(x float64) float64 {
			if x > 20 {
				return x
			}
			return math.Log1p(math.Exp(x))
		}},
		"clamp below": {func(b *graph.Builder, x graph.Value) graph.Value { return b.Clamp(x, -1, math.Inf(1)) }, func(x float64) float64 { return max(x, -1) }},
		"clamp above": {func(b *graph.Builder, x graph.Value) graph.Value { return b.Clamp(x, math.Inf(-1), 1) }, func(x float64) float64 { return min(x, 1) }},
	} {
		w := wrap(t, &lossNet{nn.NewLinear(5, 4), func(b *graph.Builder, y graph.Value) graph.Value {
			x, want := b.Part("x", dtype.F32, b.MicroBatchSize, 8), b.Part("want", dtype.F32, b.MicroBatchSize, 8)
			return nn.Mean(b, b.Add(b.Max(b.Unary(op.Abs, b.Sub(f.of(b, x), want)), 1), b.Scale(b.Sum(f.of(b, y), 1), 0)))
		}}, described(t))
		var want []float32
		for _, v := range x {
			want = append(want, float32(f.want(float64(v))))
		}
		loss, err := w.Step(spillway.Batch{"input": spillway.Floats(make([]float32, 5), 1, 5), "x": spillway.Floats(x, 1, 8), "want": spillway.Floats(want, 1, 8)})
		if err != nil || !(loss < 1e-6) {
			t.Errorf("%s: off by %v (%v)", name, loss, err)
		}
	}
}

// oneBlock is a batch norm and dropout in the block that makes the outputs.
type oneBlock struct {
	First  *nn.Linear    `hf:"first"`
	Norm   *nn.BatchNorm `hf:"norm"`
	Second *nn.Linear    `hf:"second"`
}

func (m *oneBlock) Blocks() []nn.Block {
	return []nn.Block{{Name: "all", Forward: func(b *graph.Builder, _ []graph.Value) []graph.Value {
		y := m.Second.Forward(b, nn.Dropout(0.3).Forward(b, m.Norm.Forward(b, m.First.Forward(b, nn.Input(b, 5)))))
		if b.Task == graph.Infer {
			return []graph.Value{y}
		}
		return []graph.Value{nn.Mean(b, nn.SquaredError(b, y, b.Part("target", dtype.F32, b.MicroBatchSize, 2)))}
	}}}
}

// A loss in Go of outputs that a batch norm is part of is that of training: the statistics are the batch's, and the running ones move as they do for
// the model's own loss.
func TestLossesInGoHaveTheBatchsStatistics(t *testing.T) {
	c := described(t)
	c.Optimizer, _ = optim.Parse("sgd:lr=0.1")
	in := spillway.Batch{"input": spillway.Floats(make([]float32, 40), 8, 5), "target": spillway.Floats(make([]float32, 16), 8, 2)}
	for i := range in["input"].Floats {
		in["input"].Floats[i] = float32(i*i%17) / 4
	}
	for i := range in["target"].Floats {
		in["target"].Floats[i] = float32(i % 3)
	}
	own, inGo := wrap(t, &oneBlock{nn.NewLinear(5, 3), nn.NewBatchNorm(3), nn.NewLinear(3, 2)}, c), wrap(t, &oneBlock{nn.NewLinear(5, 3), nn.NewBatchNorm(3), nn.NewLinear(3, 2)}, c)
	losses := step(t, own, in, 3)
	l, err := inGo.OutputLoop()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range losses {
		l.ZeroGrad()
		loss, err := l.BackwardWith(spillway.Batch{"input": in["input"]}, func(out spillway.Tensor) (loss float64, gradient []float32, err error) {
			for k, y := range out.Floats {
				d := y - in["target"].Floats[k]
				loss += float64(d) * float64(d) / 16
				gradient = append(gradient, 2*d/16)
			}
			return loss, gradient, nil
		})
		if err == nil {
			_, err = l.Step()
		}
		if err != nil || math.Abs(loss-want) > 1e-6 {
			t.Fatalf("the loss is %v, the model's own %v (%v)", loss, want, err)
		}
	}
	dict := stateDict(t, inGo)
	for name, want := range stateDict(t, own) {
		for i, x := range want.Floats {
			if math.Abs(float64(x-dict[name].Floats[i])) > 1e-6 {
				t.Errorf("%s, element %d: %v, with the model's own loss %v", name, i, dict[name].Floats[i], x)
			}
		}
	}
}
