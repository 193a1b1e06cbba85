package main

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"spillway"
	"spillway/graph"
	"spillway/nn"
	"spillway/optim"
)

// trained runs iterations in exactly the memory the plan needs.
func trained(t *testing.T, p plan, iterations int) (*device, []float64) {
	t.Helper()
	dev := &device{host: newHost(), limit: memoryNeeded(t, p)}
	var losses []float64
	for range iterations {
		loss, err := dev.iterate(p)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	return dev, losses
}

// memoryNeeded returns the memory that a plan needs.
func memoryNeeded(t *testing.T, p plan) int {
	t.Helper()
	dev := &device{}
	if _, err := dev.iterate(p); err != nil {
		t.Fatal(err)
	}
	return dev.peak
}

// stack is the model of this program for the engine.
type stack struct {
	Layers []*layer `hf:"layers"`
}

type layer struct {
	Up   *nn.Linear `hf:"up"`
	Down *nn.Linear `hf:"down"`
}

func (s *stack) Blocks() (list []nn.Block) {
	for i, l := range s.Layers {
		list = append(list, nn.Block{Name: fmt.Sprintf("layers.%d", i), Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
			if i == 0 {
				in = []graph.Value{nn.Input(b, C)}
			}
			return []graph.Value{b.Add(in[0], l.Down.Forward(b, nn.GELU.Forward(b, l.Up.Forward(b, in[0]))))}
		}})
	}
	return append(list, nn.Block{Name: "loss", Forward: func(b *graph.Builder, in []graph.Value) []graph.Value {
		return []graph.Value{nn.MeanSquare.Forward(b, in[0])}
	}})
}

func floats(list []float64) []float32 {
	out := make([]float32, len(list))
	for i, v := range list {
		out[i] = float32(v)
	}
	return out
}

// TestLossesAreTheEngines trains the same model with the engine, in as many bytes as the
// standard plan has elements.
func TestLossesAreTheEngines(t *testing.T) {
	h, model, weights := newHost(), &stack{}, spillway.StateDict{}
	for b := range blocks {
		l := &layer{nn.NewLinear(C, F), nn.NewLinear(F, C)}
		l.Up.Bias, l.Down.Bias = nil, nil
		model.Layers = append(model.Layers, l)
		weights[fmt.Sprintf("layers.%d.up.weight", b)] = spillway.Floats(floats(h.weights[b][:F*C]), F, C)
		weights[fmt.Sprintf("layers.%d.down.weight", b)] = spillway.Floats(floats(h.weights[b][F*C:]), C, F)
	}
	adam, err := optim.Parse(fmt.Sprintf("adamw:lr=%v,beta1=%v,beta2=%v,eps=%v,weight_decay=%v", lr, beta1, beta2, tiny, decay))
	if err != nil {
		t.Fatal(err)
	}
	engine, err := spillway.Wrap(model, spillway.Config{Options: spillway.Options{Optimizer: adam, BatchSize: N, MaxMemory: fmt.Sprint(memoryNeeded(t, standard()))}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if err := engine.LoadStateDict(weights); err != nil {
		t.Fatal(err)
	}
	_, losses := trained(t, streamed(), 20)
	for i, want := range losses {
		got, err := engine.Step(spillway.Batch{"input": spillway.Floats(floats(h.batch), N, C), "target": spillway.Floats(floats(h.target), N, C)})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got/want-1) > 1e-5 {
			t.Errorf("the loss of iteration %d is %.8f here, %.8f in the engine", i, want, got)
		}
	}
	if last := losses[len(losses)-1]; !(last < 0.9*losses[0]) {
		t.Errorf("the loss goes from %v to %v, which is no training", losses[0], last)
	}
}

// TestGradients compares gradients with differences of the loss.
func TestGradients(t *testing.T) {
	loss := func(h *host) float64 {
		got, err := (&device{host: h}).iterate(streamed())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	dev := &device{host: newHost()}
	if _, err := dev.iterate(streamed()); err != nil {
		t.Fatal(err)
	}
	const step = 1e-5
	for b := range blocks {
		for _, i := range []int{0, F*C - 1, F * C, 2*F*C - 1} {
			above, below := newHost(), newHost()
			above.weights[b][i] += step
			below.weights[b][i] -= step
			want := (loss(above) - loss(below)) / (2 * step)
			if got := dev.host.m[b][i] / (1 - beta1); math.Abs(got-want) > 1e-8 {
				t.Errorf("gradient %d of block %d is %v, the loss changes by %v", i, b, got, want)
			}
		}
	}
}

// TestPlansAgree shows that placement changes memory and not one bit of the numbers.
func TestPlansAgree(t *testing.T) {
	a, lossesA := trained(t, standard(), 3)
	b, lossesB := trained(t, streamed(), 3)
	if !slices.Equal(lossesA, lossesB) {
		t.Errorf("losses differ between plans: %v and %v", lossesA, lossesB)
	}
	if !slices.Equal(slices.Concat(a.host.weights[:]...), slices.Concat(b.host.weights[:]...)) {
		t.Error("weights differ between plans")
	}
	if a.peak != a.limit || b.peak != b.limit {
		t.Errorf("peaks %d and %d, forecast %d and %d", a.peak, b.peak, a.limit, b.limit)
	}
	// Streamed, the device holds the inputs of the blocks and everything of one block;
	// standard, everything of all of them.
	everything := buffer{weight, 1}.size() + buffer{grad, 1}.size() + buffer{saved, 1}.size()
	most, least := everything+buffer{work, 1}.size()+(blocks+2)*N*C, blocks*everything
	if b.peak > most {
		t.Errorf("streamed needs %d elements, at most %d are needed", b.peak, most)
	}
	if a.peak < least {
		t.Errorf("standard needs %d elements, at least %d are there at its end", a.peak, least)
	}
}

func TestWrongPlansFail(t *testing.T) {
	good := streamed()
	for name, c := range map[string]struct {
		plan  plan
		limit int
	}{
		"one element too little":  {good, memoryNeeded(t, good) - 1},
		"weights that never come": {good[1:], 0},
		"weights that come twice": {append(plan{good[0]}, good...), 0},
		"a buffer left behind":    {good[:len(good)-1], 0},
	} {
		if _, err := (&device{host: newHost(), limit: c.limit}).iterate(c.plan); err == nil {
			t.Errorf("%s: the device carried out the plan without an error", name)
		}
	}
}
