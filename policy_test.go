package spillway_test

import (
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/optim"
)

// stateBytes is what the optimizer keeps of a wrapped model, wherever it rests.
func stateBytes(w *spillway.Wrapped) (n int64) {
	for _, m := range w.MemoryStats().Modules {
		n += m.OptimizerState.Device + m.OptimizerState.Host
	}
	return n
}

// A wrapped model follows its policy between two steps, and can be planned again before
// and after without a bit changing.
func TestWrappedModelsFollowPolicies(t *testing.T) {
	policy, err := optim.ParsePolicy("max-compression:warmup=3")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range ownModels() {
		t.Run(o.name, func(t *testing.T) {
			c := described(t)
			c.MicroBatches = 1
			plain := step(t, wrap(t, o.net(), c), o.batch, 7)
			c.StatePolicy = policy
			calm := wrap(t, o.net(), c)
			want := step(t, calm, o.batch, 2)
			before := stateBytes(calm)
			want = append(want, step(t, calm, o.batch, 5)...)
			if !slices.Equal(want[:4], plain[:4]) || slices.Equal(want, plain) {
				t.Errorf("losses %v, without a policy %v", want, plain)
			}
			if after := stateBytes(calm); after >= before {
				t.Errorf("the optimizer keeps %d bytes, before the policy began %d", after, before)
			}
			if list := calm.Explain().Notices; !slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "compressed from iteration 4 on") }) {
				t.Errorf("notices %q", list)
			}
			w := wrap(t, o.net(), c)
			got := step(t, w, o.batch, 1)
			for _, strategy := range []string{"cpu-offload", "checkpointing", ""} {
				next := w.Config()
				next.Strategy = strategy
				if err := w.Replan(next); err != nil {
					t.Fatal(err)
				}
				got = append(got, step(t, w, o.batch, 2)...)
			}
			if !slices.Equal(got, want) || !sameDict(stateDict(t, w), stateDict(t, calm)) {
				t.Errorf("losses %v, without planning again %v", got, want)
			}
		})
	}
}
