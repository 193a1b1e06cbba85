package spillway_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/nn"
	"spillway/optim"
	"spillway/quant"
)

// half is a part of a batch: its sequences from one to another.
func half(b spillway.Batch, from, to int64) spillway.Batch {
	part := spillway.Batch{}
	for name, t := range b {
		n := t.Shape.Elements() / t.Shape[0]
		s := append([]int64{to - from}, t.Shape[1:]...)
		if t.Ints != nil {
			part[name] = spillway.Ints(t.Ints[from*n:to*n], s...)
		} else {
			part[name] = spillway.Floats(t.Floats[from*n:to*n], s...)
		}
	}
	return part
}

func loopOf(t testing.TB, w *spillway.Wrapped) *spillway.Loop {
	t.Helper()
	l, err := w.Loop()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// backwardAndStep is an iteration in separate calls.
func backwardAndStep(t testing.TB, l *spillway.Loop, b spillway.Batch) (float64, spillway.Report) {
	t.Helper()
	l.ZeroGrad()
	loss, err := l.Backward(b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Step()
	if err != nil {
		t.Fatal(err)
	}
	return loss, r
}

// Backward and Step as separate calls are Step, to the bit, wherever weights and states are, in every
// precision; Step on a model with a loop is too.
func TestLoopsAreSteps(t *testing.T) {
	o := ownModels()[2]
	for name, of := range map[string]func(*spillway.Config){
		"f32":     func(*spillway.Config) {},
		"bf16":    func(c *spillway.Config) { c.Precision = dtype.BF16 },
		"pure":    func(c *spillway.Config) { c.Precision, c.Pure = dtype.BF16, true },
		"fp16":    func(c *spillway.Config) { c.Precision = dtype.F16 },
		"dropped": func(c *spillway.Config) { c.Optimizer, _ = optim.Parse("adafactor:lr=1e-2") },
		"8bit":    func(c *spillway.Config) { c.Optimizer, _ = optim.Parse("adamw_8bit:lr=1e-2,min_8bit_size=1") },
	} {
		config := func(strategy string) spillway.Config {
			c := described(t)
			c.Optimizer, _ = optim.Parse("adamw:lr=1e-2")
			if of(&c); strategy == "disk-offload" {
				c.Disk = t.TempDir()
			}
			c.Strategy = strategy
			return c
		}
		whole := wrap(t, o.net(), config("standard"))
		losses := step(t, whole, o.batch, 4)
		dict := stateDict(t, whole)
		strategies := []string{"standard", "cpu-offload"}
		if name == "f32" || name == "bf16" {
			strategies = []string{"standard", "checkpointing", "optimizer-offload", "cpu-offload", "disk-offload"}
		}
		for _, strategy := range strategies {
			w := wrap(t, o.net(), config(strategy))
			l := loopOf(t, w)
			var got []float64
			for range 2 {
				loss, _ := backwardAndStep(t, l, o.batch)
				got = append(got, loss)
			}
			got = append(got, step(t, w, o.batch, 2)...)
			if !slices.Equal(got, losses) || !sameDict(stateDict(t, w), dict) {
				t.Errorf("%s, %s: losses %v in separate calls, %v in one", name, strategy, got, losses)
			}
			if s := w.Strategy(); !strings.Contains(strings.ToLower(s), strings.ReplaceAll(strategy, "-", " ")) {
				t.Errorf("%s ran as %s", strategy, s)
			}
		}
	}
}

// A loop may begin after steps: weights and states are carried over.
func TestLoopsBeginLater(t *testing.T) {
	o := ownModels()[2]
	_, losses, dict, _ := standard(t, o, 4)
	w := wrap(t, o.net(), described(t))
	got := step(t, w, o.batch, 2)
	l := loopOf(t, w)
	for range 2 {
		loss, _ := backwardAndStep(t, l, o.batch)
		got = append(got, loss)
	}
	if !slices.Equal(got, losses) || !sameDict(stateDict(t, w), dict) {
		t.Errorf("losses %v, in one piece %v", got, losses)
	}
}

// Several Backwards add up: to the bit as canonical sums add micro-batches.
func TestLoopsAccumulate(t *testing.T) {
	o := ownModels()[0] // nothing is tied, so a gradient is one sum; it has dropout
	n := o.batch["targets"].Shape
	c := described(t)
	c.CanonicalSums, c.MicroBatches = true, 2
	whole := wrap(t, o.net(), c)
	step(t, whole, o.batch, 3)
	w := wrap(t, o.net(), described(t))
	l := loopOf(t, w)
	for range 3 {
		l.ZeroGrad()
		for _, part := range []spillway.Batch{half(o.batch, 0, n[0]/2), half(o.batch, n[0]/2, n[0])} {
			if _, err := l.BackwardScaled(part, math.NaN()); err == nil || !strings.Contains(err.Error(), "a weight is a finite number") {
				t.Errorf("gradients times NaN: %v", err)
			}
			if _, err := l.BackwardScaled(part, 0.5); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Step(); err != nil {
			t.Fatal(err)
		}
	}
	if !sameDict(stateDict(t, w), stateDict(t, whole)) {
		t.Error("two halves are not the whole")
	}
}

// Gradients can be read, changed and clipped by hand, and rates set.
func TestLoopsByHand(t *testing.T) {
	o := ownModels()[2]
	config := func(optimizer string) spillway.Config {
		c := described(t)
		c.Optimizer, _ = optim.Parse(optimizer)
		return c
	}
	clipped := config("sgd:lr=0.125,momentum=0.5")
	clipped.Clip = 0.01
	want := wrap(t, o.net(), clipped)
	step(t, want, o.batch, 3)

	c := config("sgd:lr=1,momentum=0.5")
	c.Strategy = "cpu-offload"
	w := wrap(t, o.net(), c)
	l := loopOf(t, w)
	if _, err := l.Gradient("items.weight"); err == nil {
		t.Error("there is a gradient before Backward")
	}
	if _, err := l.Step(); err == nil {
		t.Error("a step without gradients")
	}
	tokens := spillway.Batch{"tokens": o.batch["tokens"]}
	here, err := l.Forward(tokens)
	if err != nil {
		t.Fatal(err)
	}
	if there, err := w.Forward(tokens); err != nil || !slices.Equal(here.Floats, there.Floats) {
		t.Errorf("other outputs in a loop (%v)", err)
	}
	for range 3 {
		l.ZeroGrad()
		if _, err := l.Backward(o.batch); err != nil {
			t.Fatal(err)
		}
		var sum float64
		if err := l.EachGradient(func(_ string, g spillway.Tensor) ([]float32, error) {
			sum += optim.SumSquares(g.Floats)
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		norm, err := l.ClipGradNorm(0.01)
		if err != nil || math.Abs(norm-math.Sqrt(sum)) > 1e-9*norm || !(norm > 0.01) {
			t.Fatalf("the norm is %v, of all gradients %v (%v)", norm, math.Sqrt(sum), err)
		}
		if err := w.SetLR(0.125); err != nil {
			t.Fatal(err)
		}
		if r, err := l.Step(); err != nil || r.LR != 0.125 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	nearDicts(t, stateDict(t, w), stateDict(t, want), 1e-6)

	g, err := l.Gradient("items.weight")
	if err != nil {
		t.Fatal(err)
	}
	for i := range g.Floats {
		g.Floats[i] = float32(i)
	}
	if err := l.SetGradient("items.weight", g.Floats); err != nil {
		t.Fatal(err)
	}
	if again, err := l.Gradient("items.weight"); err != nil || !slices.Equal(again.Floats, g.Floats) {
		t.Errorf("set %v, read %v (%v)", g.Floats[:3], again.Floats, err)
	}
	for _, err := range []error{l.SetGradient("items.weight", g.Floats[:1]), l.SetGradient("nowhere", nil), w.SetLR(math.NaN()), w.SetGroupLR(1, 0.1)} {
		if err == nil {
			t.Error("accepted")
		}
	}
}

// nearDicts compares weights within a bound.
func nearDicts(t testing.TB, got, want spillway.StateDict, within float64) {
	t.Helper()
	for name, w := range want {
		for i, f := range w.Floats {
			if d := math.Abs(float64(got[name].Floats[i] - f)); !(d <= within*math.Max(1, math.Abs(float64(f)))) {
				t.Errorf("%s[%d] is %v, want %v", name, i, got[name].Floats[i], f)
				break
			}
		}
	}
}

// Params in groups are trained as by optimizers of their own: with SGD, whose step depends on nothing
// but the gradient, rates and decay by group are the weights after a step.
func TestGroupsHaveTheirOwnRates(t *testing.T) {
	o := ownModels()[2]
	of := func(strategy, optimizer string, groups ...optim.Group) spillway.StateDict {
		c := described(t)
		c.Optimizer, _ = optim.Parse(optimizer)
		c.Groups, c.Strategy = groups, strategy
		w := wrap(t, o.net(), c)
		step(t, w, o.batch, 1)
		return stateDict(t, w)
	}
	slow, fast, decayed := of("standard", "sgd:lr=0.1"), of("standard", "sgd:lr=0.5"), of("standard", "sgd:lr=0.1,weight_decay=0.3")
	for _, strategy := range []string{"standard", "cpu-offload"} {
		got := of(strategy, "sgd:lr=0.1", optim.Group{Params: []string{"norms"}, Options: "lr=0.5"}, optim.Group{Params: []string{`fc\.weight$`, "norms"}, Options: "weight_decay=0.3"})
		for name, tensor := range got {
			want := slow
			switch {
			case strings.Contains(name, "norm"):
				want = fast
			case strings.HasSuffix(name, "fc.weight"):
				want = decayed
			}
			if !slices.Equal(tensor.Floats, want[name].Floats) {
				t.Errorf("%s: %s is not as its group says", strategy, name)
			}
		}
	}
	// What a group says of weight decay counts, also of params that are left alone otherwise.
	c := described(t)
	c.Optimizer, _ = optim.Parse("sgd:lr=0.1,weight_decay=0.3")
	c.NoDecay, c.Groups = optim.DefaultNoDecay(), []optim.Group{{Params: []string{"norms"}, Options: "weight_decay=0.3"}}
	own := wrap(t, o.net(), c)
	step(t, own, o.batch, 1)
	for name, tensor := range stateDict(t, own) {
		want := decayed
		if strings.HasSuffix(name, "bias") && !strings.Contains(name, "norm") {
			want = slow
		}
		if !slices.Equal(tensor.Floats, want[name].Floats) {
			t.Errorf("%s does not decay as its group says", name)
		}
	}
	w := wrap(t, o.net(), func() spillway.Config {
		c := described(t)
		c.Groups = []optim.Group{{Params: []string{"norms"}, Options: "lr=0.5"}}
		return c
	}())
	step(t, w, o.batch, 1)
	if err := w.SetGroupLR(1, 0); err != nil {
		t.Fatal(err)
	}
	before := stateDict(t, w)
	step(t, w, o.batch, 1)
	after := stateDict(t, w)
	if !slices.Equal(before["tower.0.norm.bias"].Floats, after["tower.0.norm.bias"].Floats) || slices.Equal(before["items.weight"].Floats, after["items.weight"].Floats) {
		t.Error("a rate of 0 changes its group, or others do not change")
	}
	for want, groups := range map[string][]optim.Group{
		"no option":              {{Params: []string{"norms"}, Options: "speed=1"}},
		"empty pattern":          {{Params: []string{""}, Options: "lr=1"}},
		"which states there are": {{Params: []string{"norms"}, Options: "codecs=exp_avg:8bit"}},
	} {
		c := described(t)
		c.Groups = groups
		if w, err := spillway.Wrap(o.net(), c); err == nil {
			if _, err = w.Step(o.batch); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			w.Close()
		}
	}
}

// What is frozen by name does not change, from any step on and until any other; the rest is trained as
// if nothing had happened, since its states are carried over.
func TestFreezing(t *testing.T) {
	o := ownModels()[2]
	for _, strategy := range []string{"standard", "cpu-offload"} {
		c := described(t)
		c.Optimizer, _ = optim.Parse("adamw:lr=1e-2")
		c.Strategy = strategy
		whole := wrap(t, o.net(), c)
		w := wrap(t, o.net(), c)
		step(t, whole, o.batch, 2)
		step(t, w, o.batch, 2)
		before := stateDict(t, w)
		if err := w.Freeze(`tower\.[01]\.`, "norms"); err != nil {
			t.Fatal(err)
		}
		if !sameDict(stateDict(t, w), before) {
			t.Fatal("freezing changed weights")
		}
		step(t, whole, o.batch, 1)
		step(t, w, o.batch, 1)
		after, all := stateDict(t, w), stateDict(t, whole)
		for name := range after {
			frozen := strings.Contains(name, "tower.0") || strings.Contains(name, "tower.1") || strings.Contains(name, "norm")
			want := all
			if frozen {
				want = before
			}
			if !slices.Equal(after[name].Floats, want[name].Floats) {
				t.Errorf("%s: %s, frozen: %v, is otherwise", strategy, name, frozen)
			}
		}
		if err := w.Freeze(); err != nil {
			t.Fatal(err)
		}
		step(t, w, o.batch, 1)
		if slices.Equal(stateDict(t, w)["tower.0.fc.weight"].Floats, after["tower.0.fc.weight"].Floats) {
			t.Error("what is no longer frozen does not change")
		}
		for _, err := range []error{w.Freeze("nothing"), w.Freeze("."), w.Freeze("(")} {
			if err == nil {
				t.Error("accepted")
			}
		}
		step(t, w, o.batch, 1)
	}
}

// The average of weights is PyTorch's AveragedModel with an EMA: the weights after the first step, then
// d·average + (1-d)·weights. It is used to evaluate, saved, and carried over to other plans.
func TestAverageOfWeights(t *testing.T) {
	o := ownModels()[2]
	for _, precision := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, strategy := range []string{"standard", "cpu-offload"} {
			c := described(t)
			c.Optimizer, _ = optim.Parse("adamw:lr=1e-2")
			c.Strategy, c.Average, c.Precision = strategy, 0.75, precision
			w := wrap(t, o.net(), c)
			var want spillway.StateDict
			for i := range 4 {
				step(t, w, o.batch, 1)
				now := stateDict(t, w)
				if i == 0 {
					want = now.Clone()
					continue
				}
				for name := range now {
					for k, f := range now[name].Floats {
						want[name].Floats[k] = 0.75*want[name].Floats[k] + 0.25*f
					}
				}
				if i == 2 {
					other := w.Config()
					other.Strategy = "checkpointing"
					if err := w.Replan(other); err != nil {
						t.Fatal(err)
					}
				}
			}
			got, err := w.AverageWeights()
			if err != nil {
				t.Fatal(err)
			}
			nearDicts(t, got, want, 1e-6)
			own := stateDict(t, w)
			averaged := wrap(t, o.net(), c)
			if err := averaged.LoadStateDict(got); err != nil {
				t.Fatal(err)
			}
			expected, err := averaged.Evaluate(o.batch)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.WithAverage(func() error {
				loss, err := w.Evaluate(o.batch)
				if loss != expected {
					t.Errorf("the loss of the average is %v, want %v", loss, expected)
				}
				return err
			}); err != nil || !sameDict(stateDict(t, w), own) {
				t.Errorf("the weights are not as before: %v", err)
			}
			step(t, w, o.batch, 1)
		}
	}
}

// Compress compresses at once what a policy would compress later.
func TestCompressByHand(t *testing.T) {
	o := ownModels()[2]
	c := described(t)
	if w := wrap(t, o.net(), c); true {
		step(t, w, o.batch, 1)
		if err := w.Compress(); err == nil {
			t.Error("compressed without a policy")
		}
	}
	c.StatePolicy, _ = optim.ParsePolicy("auto:warmup=1000,min_8bit_size=1")
	w := wrap(t, o.net(), c)
	step(t, w, o.batch, 2)
	before := stateBytes(w)
	if err := w.Compress(); err != nil {
		t.Fatal(err)
	}
	if after := stateBytes(w); !(after < before) {
		t.Errorf("%d bytes of states, before %d", after, before)
	}
	step(t, w, o.batch, 2)
}

// A loss that the program computes from outputs trains as the model's own does: the gradient of mean square
// error, made in Go, gives the weights that the model's mean square loss gives, with dropout too.
func TestLossesInGo(t *testing.T) {
	o := ownModels()[1] // an encoder with dropout and masks
	target := o.batch["target"].Floats
	for _, strategy := range []string{"standard", "cpu-offload"} {
		c := described(t)
		c.Optimizer, _ = optim.Parse("sgd:lr=0.1,momentum=0.5")
		c.Strategy = strategy
		want := wrap(t, o.net(), c)
		losses := step(t, want, o.batch, 3)
		w := wrap(t, o.net(), c)
		l, err := w.OutputLoop()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			l.ZeroGrad()
			loss, err := l.BackwardWith(o.inputs(), func(out spillway.Tensor) (loss float64, gradient []float32, err error) {
				gradient = make([]float32, len(out.Floats))
				for k, y := range out.Floats {
					d := y - target[k]
					loss += float64(d) * float64(d) / float64(len(target))
					gradient[k] = 2 * d / float32(len(target))
				}
				return loss, gradient, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(loss-losses[i]) > 1e-5*losses[i] {
				t.Errorf("%s: loss %v of step %d, the model's own is %v", strategy, loss, i, losses[i])
			}
			if _, err := l.Step(); err != nil {
				t.Fatal(err)
			}
		}
		nearDicts(t, stateDict(t, w), stateDict(t, want), 1e-5)
		if _, err := l.Backward(o.inputs()); err == nil {
			t.Error("a loss that there is not")
		}
	}
}

// A function of param and state decides on types, between any two steps, and wherever states are.
func TestStateTypesByFunction(t *testing.T) {
	o := ownModels()[2]
	c := described(t)
	c.Strategy = "cpu-offload"
	w := wrap(t, o.net(), c)
	step(t, w, o.batch, 2)
	before := stateBytes(w)
	if err := w.SetStateTypes(func(param, state string) dtype.Type {
		switch {
		case state == "exp_avg":
			return quant.Dyn8
		case strings.Contains(param, "fc"):
			return dtype.BF16
		}
		return dtype.Invalid
	}); err != nil {
		t.Fatal(err)
	}
	s, err := w.OptimizerState()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]dtype.Type{"exp_avg.items.weight": quant.Dyn8, "exp_avg_sq.items.weight": dtype.F32, "exp_avg_sq.tower.0.fc.weight": dtype.BF16} {
		if got := s.States[name].Type.DType; got != want {
			t.Errorf("%s is in %v, want %v", name, got, want)
		}
	}
	if after := stateBytes(w); !(after < before) {
		t.Errorf("%d bytes of states, before %d", after, before)
	}
	step(t, w, o.batch, 2)
	if err := w.SetStateTypes(func(string, string) dtype.Type { return dtype.I32 }); err == nil {
		t.Error("states in i32")
	}
}

// Centralized gradients have rows that sum to zero; in Step and in a loop they give the same weights.
func TestCentralizedGradients(t *testing.T) {
	o := ownModels()[2]
	whole := wrap(t, o.net(), described(t))
	if err := whole.OnGradient(spillway.CentralizeGradients); err != nil {
		t.Fatal(err)
	}
	step(t, whole, o.batch, 2)
	w := wrap(t, o.net(), described(t))
	l := loopOf(t, w)
	for range 2 {
		l.ZeroGrad()
		if _, err := l.Backward(o.batch); err != nil {
			t.Fatal(err)
		}
		if err := l.EachGradient(spillway.CentralizeGradients); err != nil {
			t.Fatal(err)
		}
		g, err := l.Gradient("tower.0.fc.weight")
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		for _, f := range g.Floats[:g.Shape[1]] {
			sum += float64(f)
		}
		if math.Abs(sum) > 1e-6 {
			t.Errorf("a row sums to %v", sum)
		}
		if _, err := l.Step(); err != nil {
			t.Fatal(err)
		}
	}
	if !sameDict(stateDict(t, w), stateDict(t, whole)) {
		t.Error("the weights differ")
	}
	// The plan can do it too, wherever weights are, in the programs that make the gradients.
	var first spillway.StateDict
	for _, strategy := range []string{"standard", "cpu-offload"} {
		c := described(t)
		c.Centralize, c.Strategy, c.Clip = true, strategy, 1e9
		planned := wrap(t, o.net(), c)
		step(t, planned, o.batch, 2)
		nearDicts(t, stateDict(t, planned), stateDict(t, whole), 1e-5)
		if first == nil {
			first = stateDict(t, planned)
		} else if !sameDict(stateDict(t, planned), first) {
			t.Errorf("%s: other bits than standard", strategy)
		}
	}
}

// StableEmbedding is an embedding with a norm, under bitsandbytes' names.
func TestStableEmbedding(t *testing.T) {
	s := nn.NewSequential(nn.NewStableEmbedding(12, 8), nn.NewLinear(8, 12))
	s.Loss = nn.CrossEntropy
	c := described(t)
	c.Optimizer, _ = optim.Parse("adamw_8bit:lr=1e-2,min_8bit_size=1,states_of=^0\\.:f32")
	w := wrap(t, s, c)
	ids := spillway.Ints([]int32{1, 2, 3, 4, 5, 6}, 2, 3)
	losses := step(t, w, spillway.Batch{"tokens": ids, "targets": ids}, 20)
	if d := stateDict(t, w); !(losses[19] < losses[0]/2) || d["0.weight"].Floats == nil || d["0.norm.bias"].Floats == nil {
		t.Errorf("losses %v of %v", losses, d)
	}
}
