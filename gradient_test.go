package spillway_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/optim"
)

// Twice the gradients is twice the learning rate, to the bit, wherever weights and states are.
// Every trained param is shown once in an iteration.
func TestGradientsCanBeChanged(t *testing.T) {
	of := func(t *testing.T, strategy, optimizer string) spillway.Config {
		c := described(t)
		var err error
		if c.Optimizer, err = optim.Parse(optimizer); err != nil {
			t.Fatal(err)
		}
		if c.Strategy = strategy; strategy == "disk-offload" {
			c.Disk = t.TempDir()
		}
		return c
	}
	o := ownModels()[2]
	want := wrap(t, o.net(), of(t, "standard", "sgd:lr=0.125,momentum=0.5"))
	losses := step(t, want, o.batch, 4)
	dict := stateDict(t, want)
	for _, strategy := range []string{"standard", "checkpointing", "optimizer-offload", "cpu-offload", "disk-offload"} {
		w := wrap(t, o.net(), of(t, strategy, "sgd:lr=0.0625,momentum=0.5"))
		shown := map[string]int{}
		if err := w.OnGradient(func(param string, g spillway.Tensor) ([]float32, error) {
			shown[param]++
			for i := range g.Floats {
				g.Floats[i] *= 2
			}
			return g.Floats, nil
		}); err != nil {
			t.Fatal(err)
		}
		if got := step(t, w, o.batch, 4); !slices.Equal(got, losses) || !sameDict(stateDict(t, w), dict) {
			t.Errorf("%s: losses %v, with twice the rate %v", strategy, got, losses)
		}
		if names := slices.Sorted(maps.Keys(dict)); !slices.Equal(slices.Sorted(maps.Keys(shown)), names) {
			t.Errorf("%s: shown are %v, trained %v", strategy, shown, names)
		}
		for param, n := range shown {
			if n != 4 {
				t.Errorf("%s: %s was shown %d times in 4 iterations", strategy, param, n)
			}
		}
		if err := w.OnGradient(nil); err != nil {
			t.Fatal(err)
		}
		step(t, w, o.batch, 1)
		if shown["items.weight"] != 4 {
			t.Errorf("%s: shown after it was taken off", strategy)
		}
	}
}

// What a hook cannot do is an error that says so; one that only looks changes nothing.
func TestHooksOfGradients(t *testing.T) {
	o := ownModels()[2]
	_, losses, _, _ := standard(t, o, 2)
	w := wrap(t, o.net(), described(t))
	step(t, w, o.batch, 1)
	sums := map[string]float64{}
	if err := w.OnGradient(func(param string, g spillway.Tensor) ([]float32, error) {
		for _, v := range g.Floats {
			sums[param] += float64(v) * float64(v)
		}
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := step(t, w, o.batch, 1); got[0] != losses[1] || !(sums["tower.0.fc.weight"] > 0) {
		t.Errorf("losses %v after looking, want %v; squares %v", got, losses[1], sums)
	}
	clipped := described(t)
	clipped.Clip = 1
	for name, c := range map[string]struct {
		config spillway.Config
		hook   spillway.GradientHook
	}{
		"known already": {clipped, func(_ string, g spillway.Tensor) ([]float32, error) { return g.Floats, nil }},
		"1 numbers":     {described(t), func(string, spillway.Tensor) ([]float32, error) { return []float32{1}, nil }},
		"not today":     {described(t), func(string, spillway.Tensor) ([]float32, error) { return nil, errors.New("not today") }},
	} {
		w := wrap(t, o.net(), c.config)
		if err := w.OnGradient(c.hook); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Step(o.batch); err == nil || !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

// Running statistics of batch norms move by their momentum alone: they are no gradients, so hooks do not see them, norms do not
// count them, and clipping by hand does not slow them down.
func TestStatisticsAreNoGradients(t *testing.T) {
	batch := spillway.Batch{"ids": spillway.Ints([]int32{0, 1, 2, 5}, 4), "targets": spillway.Ints([]int32{1, 2, 3, 0}, 4)}
	w := wrap(t, newScores(), described(t))
	items := stateDict(t, w)["items.weight"].Floats
	var want [4]float32 // a tenth of the mean over the batch, from zeros
	for _, id := range batch["ids"].Ints {
		for c := range want {
			want[c] += items[4*int(id)+c] / 40
		}
	}
	moved := func(by string, w *spillway.Wrapped) {
		t.Helper()
		for c, got := range stateDict(t, w)["norm.running_mean"].Floats {
			if off := got - want[c]; off > 1e-6 || off < -1e-6 {
				t.Errorf("%s: running mean %d is %v, want %v", by, c, got, want[c])
			}
		}
	}
	for _, by := range []string{"clipping", "scaling"} {
		w := wrap(t, newScores(), described(t))
		l := loopOf(t, w)
		weight := map[string]float64{"clipping": 1, "scaling": 0.25}[by]
		if _, err := l.BackwardScaled(batch, weight); err != nil {
			t.Fatal(err)
		}
		var squares float64
		if err := l.EachGradient(func(param string, g spillway.Tensor) ([]float32, error) {
			if strings.Contains(param, "running") {
				t.Errorf("a gradient of %s", param)
			}
			squares += optim.SumSquares(g.Floats)
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Gradient("norm.running_var"); err == nil || !strings.Contains(err.Error(), "running statistic") {
			t.Errorf("the gradient of a running statistic: %v", err)
		}
		if norm, err := l.ClipGradNorm(1e-3); err != nil || math.Abs(norm-math.Sqrt(squares)) > 1e-9 {
			t.Errorf("a norm of %v (%v), the gradients that are shown have %v", norm, err, math.Sqrt(squares))
		}
		if _, err := l.Step(); err != nil {
			t.Fatal(err)
		}
		moved(by, w)
	}
	if err := w.OnGradient(func(_ string, g spillway.Tensor) ([]float32, error) { return make([]float32, len(g.Floats)), nil }); err != nil {
		t.Fatal(err)
	}
	step(t, w, batch, 1)
	moved("a hook", w)
}

// A batch norm moves its running statistics as much in an update of many passes as in one of the same batch in one pass: towards the mean of
// what the passes have.
func TestStatisticsOfManyPasses(t *testing.T) {
	batch := spillway.Batch{"ids": spillway.Ints([]int32{0, 1, 2, 5}, 4), "targets": spillway.Ints([]int32{1, 2, 3, 0}, 4)}
	once := wrap(t, newScores(), described(t))
	step(t, once, batch, 1)
	want := stateDict(t, once)
	w := wrap(t, newScores(), described(t))
	l := loopOf(t, w)
	for range 40 {
		if _, err := l.BackwardScaled(batch, 1./40); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Step(); err != nil {
		t.Fatal(err)
	}
	got := stateDict(t, w)
	for _, name := range []string{"norm.running_mean", "norm.running_var"} {
		for i, x := range want[name].Floats {
			if off := math.Abs(float64(got[name].Floats[i] - x)); !(off < 1e-6) {
				t.Errorf("%s, element %d: %v after 40 passes, %v after one", name, i, got[name].Floats[i], x)
			}
		}
	}
}
