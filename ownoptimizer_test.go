package spillway_test

import (
	"slices"
	"testing"

	"spillway"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
)

// An optimizer of one's own: momentum whose steps are no larger than a bound.
func init() {
	f := op.NewFormula(1, "momentum", "rate", "bound")
	m := f.SetState(0, f.FMA(f.State(0), f.Scalar("momentum"), f.Gradient()))
	most := f.Do(op.NumMin, f.Do(op.NumAbs, m), f.Scalar("bound"))
	f.SetWeight(f.Sub(f.Weight(), f.Mul(f.Mul(f.Sign(m), most), f.Scalar("rate"))))
	optim.RegisterFormula(optim.Rule{
		Name: "test_bounded", Help: "momentum with bounded steps", LR: 0.1,
		Options: []optim.Option{{Name: "momentum", Default: 0.9, Below: 1}, {Name: "bound", Default: 0.01}},
		Scalars: func(c optim.Config, _ int, lr, _ float32) op.Scalars {
			return op.Scalars{float32(c.Get("momentum")), lr, float32(c.Get("bound"))}
		},
	}, []optim.UpdateState{{Name: "momentum_buffer"}}, f, map[string]op.Scalars{"bounded": {0.9, 0.1, 0.01}})
}

// Optimizers that are formulas, one of them of this program alone, stream, page and compress their
// states as the others do: the bits do not depend on where anything is.
func TestFormulasStream(t *testing.T) {
	o := ownModels()[2]
	for _, optimizer := range []string{"test_bounded:bound=0.02", "test_bounded_8bit:min_8bit_size=1", "ademamix:lr=1e-2", "ademamix_8bit:lr=1e-2,min_8bit_size=1", "lamb:lr=1e-2", "lars_bf16:lr=1", "schedule_free_adamw:lr=1e-2", "adamw:lr=1e-2,max_unorm=0.01"} {
		var losses []float64
		var dict spillway.StateDict
		for _, strategy := range []string{"standard", "optimizer-offload", "cpu-offload", "disk-offload"} {
			c := described(t)
			var err error
			if c.Optimizer, err = optim.Parse(optimizer); err != nil {
				t.Fatal(err)
			}
			if c.Strategy, c.Precision = strategy, dtype.F32; strategy == "disk-offload" {
				c.Disk = t.TempDir()
			}
			w := wrap(t, o.net(), c)
			got := step(t, w, o.batch, 5)
			if losses == nil {
				losses, dict = got, stateDict(t, w)
				if !(got[4] < got[0]) {
					t.Errorf("%s learns nothing: %v", optimizer, got)
				}
			}
			if !slices.Equal(got, losses) || !sameDict(stateDict(t, w), dict) {
				t.Errorf("%s, %s: losses %v, everything on the device %v", optimizer, strategy, got, losses)
			}
		}
	}
}

// A schedule-free optimizer is evaluated with its average.
func TestScheduleFreeAverage(t *testing.T) {
	o := ownModels()[2]
	c := described(t)
	c.Optimizer, _ = optim.Parse("schedule_free_adamw:lr=1e-2,beta1=0.5")
	w := wrap(t, o.net(), c)
	step(t, w, o.batch, 3)
	d, err := w.AverageWeights()
	if err != nil {
		t.Fatal(err)
	}
	y := stateDict(t, w)["score.weight"]
	if y.Floats == nil {
		y = stateDict(t, w)["items.weight"]
	}
	s, err := w.OptimizerState()
	if err != nil {
		t.Fatal(err)
	}
	z := make([]float32, len(y.Floats))
	dtype.F32.Decode(z, s.States["z.items.weight"].Bytes)
	optim.Scored(0.5, y.Floats, z)
	if !slices.Equal(d["items.weight"].Floats, y.Floats) {
		t.Error("the average is another")
	}
}
