package search

import (
	"math"
	"testing"

	"spillway/arch"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/graph"
	"spillway/machine"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner/forecast"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/spec"
)

const twoLayers = `{"model_type":"llama","vocab_size":2000,"hidden_size":128,"num_hidden_layers":2,
"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":256,"rms_norm_eps":1e-5,
"tie_word_embeddings":false,"max_position_embeddings":512}`

// On a space small enough to try everything, the search is within 5% of the best,
// whatever the budget.
func TestSearchIsNearTheBest(t *testing.T) {
	m, info, err := arch.FromConfig([]byte(twoLayers))
	if err != nil {
		t.Fatal(err)
	}
	model, err := spec.Trace("small", info.Type, m, graph.Config{MicroBatchSize: 1, Seq: 128, DType: dtype.F32, Task: graph.Train})
	if err != nil {
		t.Fatal(err)
	}
	rates := machine.Device{Name: "gpu0", Kind: machine.CPU, Compute: machine.Compute{F32: 4e11}, Bandwidth: 1e11, Link: machine.Link{In: 5e9, Out: 5e9}}
	site := goal.Site{Device: rates, DType: dtype.F32, Budget: math.MaxInt64, HostBudget: 1 << 40, Alignment: goal.Alignment, Kernels: sim.NewVirtual(rates, dtype.F32, 0, goal.Alignment)}
	goal := goal.Goal{MicroBatches: 1, Optimizer: &goal.Optimizer{Rule: optim.Adam, States: goal.FullStates("exp_avg", "exp_avg_sq")}}
	all := everything(t, model, goal, site)
	standard := all[0]
	for _, share := range []float64{0.35, 0.5, 0.7, 0.9} {
		site.Budget = int64(share * float64(standard.Device))
		best := math.Inf(1)
		for _, c := range all {
			if c.Device <= site.Budget {
				best = min(best, c.seconds)
			}
		}
		p, err := Make(model, goal, site)
		if math.IsInf(best, 1) {
			if err == nil {
				t.Errorf("%.0f%%: found a plan where there is none", 100*share)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.0f%% of the memory: %v; the best of %d takes %.6f s", 100*share, err, len(all), best)
			continue
		}
		if p.Forecast.StepSeconds > 1.05*best {
			t.Errorf("%.0f%% of the memory: %s takes %.6f s, the best of %d takes %.6f s", 100*share, p.Strategy, p.Forecast.StepSeconds, len(all), best)
		}
	}
}

// everything forecasts each mix there is, the standard one first.
func everything(t *testing.T, model *spec.Model, goal goal.Goal, site goal.Site) (all []*candidate) {
	l, err := layout.New(model, goal, site)
	if err != nil {
		t.Fatal(err)
	}
	b := newTarget(l)
	s := newSearch(b.itself())
	slabs, blocks := len(b.Slabs.List), len(model.Blocks)
	for streamed := range slabs + 1 {
		for offloaded := range slabs + 1 {
			for recompute := range b.Facts().AllRecomputed() + 1 {
				for activations := range blocks + 1 {
					for _, look := range [][2]int{{1, 0}, {1, 1}, {2, 0}, {2, 1}} {
						c := &candidate{choice: s.choice(strategy.Mix{Streamed: streamed, OffloadedState: offloaded, Recompute: recompute, OffloadedActivations: activations, Prefetch: look[0], PrefetchStates: look[1]})}
						c.seconds, c.Device = forecastOf(t, b, c.choice)
						all = append(all, c)
					}
				}
			}
		}
	}
	return all
}

func forecastOf(t *testing.T, b *target, c strategy.Choice) (float64, int64) {
	t.Helper()
	p, err := b.writer.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	pass.Order(p)
	f, err := forecast.Of(p, b.Site)
	if err != nil {
		t.Fatal(err)
	}
	return f.StepSeconds, p.Peak()[plan.OnDevice]
}
