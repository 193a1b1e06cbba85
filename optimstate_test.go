package spillway_test

import (
	"slices"
	"strings"
	"testing"

	"spillway/optim"
	"spillway/run/state"
)

// A model that takes over weights and optimizer state goes on to the bit, under another
// plan too.
func TestOptimizerStateGoesOn(t *testing.T) {
	for _, optimizer := range []string{"adamw:lr=0.01", "adamw_8bit:lr=0.01,min_8bit_size=1", "adafactor_bf16:lr=0.01,beta1=0.9", "muon:lr=0.01"} {
		config, err := optim.Parse(optimizer)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range ownModels() {
			c := described(t)
			c.MicroBatches, c.Optimizer = 1, config
			first := wrap(t, o.net(), c)
			step(t, first, o.batch, 3)
			weights := stateDict(t, first)
			kept, err := first.OptimizerState()
			if err != nil {
				t.Fatal(err)
			}
			want := step(t, first, o.batch, 3)
			c.Strategy = "cpu-offload"
			second := wrap(t, o.net(), c)
			if _, err := second.OptimizerState(); err == nil || !strings.Contains(err.Error(), "train a step") {
				t.Errorf("%s: state of a model that has none: %v", o.name, err)
			}
			step(t, second, o.batch, 1)
			if err := second.LoadStateDict(weights); err != nil {
				t.Fatal(err)
			}
			if err := second.LoadOptimizerState(kept); err != nil {
				t.Fatal(err)
			}
			if got := step(t, second, o.batch, 3); !slices.Equal(got, want) {
				t.Errorf("%s, %s: losses %v, without a change %v", o.name, optimizer, got, want)
			}
		}
	}
}

func TestOptimizerStateRefuses(t *testing.T) {
	o := ownModels()[0]
	c := described(t)
	w := wrap(t, o.net(), c)
	step(t, w, o.batch, 1)
	kept, err := w.OptimizerState()
	if err != nil {
		t.Fatal(err)
	}
	c.Optimizer, _ = optim.Parse("adamw_bf16")
	other := wrap(t, o.net(), c)
	step(t, other, o.batch, 1)
	if err := other.LoadOptimizerState(kept); err == nil || !strings.Contains(err.Error(), "the same model and optimizer") {
		t.Errorf("f32 states were taken for bf16 ones: %v", err)
	}
	kept.States["exp_avg.nothing"] = state.Packed{}
	if err := w.LoadOptimizerState(kept); err == nil || !strings.Contains(err.Error(), "the run has no exp_avg.nothing") {
		t.Errorf("an unknown state was taken: %v", err)
	}
	delete(kept.States, "exp_avg.nothing")
	kept.Iterations = -1
	if w.LoadOptimizerState(kept) == nil {
		t.Error("a negative iteration was taken")
	}
}
