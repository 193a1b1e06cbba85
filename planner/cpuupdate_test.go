package planner_test

import (
	"strings"
	"testing"

	"spillway/dtype"
	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/optim"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
)

// updatesBy counts the updates of a plan by the host and by devices.
func updatesBy(p *plan.Plan) (host, device int) {
	for _, s := range p.Instructions {
		switch {
		case s.Verb != plan.Update:
		case p.Devices[s.Device].Name == plan.HostName:
			host++
		default:
			device++
		}
	}
	return host, device
}

// The slower the link, the more slabs are updated where their state is; and leaving the
// choice open is hardly slower than asking for it.
func TestSlowLinksUpdateOnTheHost(t *testing.T) {
	var before float64
	for _, link := range []string{"400GB/s", "25GB/s", "3GB/s"} {
		r := named(t, "llama-3.2-1b", "gpu:8GiB@"+link+",host:64GiB", 1, 512, graph.Train)
		p, _, err := r.Plan()
		if err != nil {
			t.Fatal(err)
		}
		host, _ := updatesBy(p)
		share := float64(host) / float64(len(p.Slabs))
		if share <= before && before > 0 || link == "3GB/s" && share < 0.75 { // some keep their state on the device
			t.Errorf("a link of %s: %s; the host updates %.0f%% of the slabs, with the faster link %.0f%%", link, p.Strategy, 100*share, 100*before)
		}
		before = share
		for _, who := range strategy.Updaters {
			r.Goal.Constraints.Updates = who
			q, _, err := r.Plan()
			if err != nil {
				t.Fatal(err)
			}
			if q.Forecast.StepSeconds < 0.97*p.Forecast.StepSeconds {
				t.Errorf("a link of %s: %s takes %.4g s, asking for %s %.4g s: %s", link, p.Strategy, p.Forecast.StepSeconds, who, q.Forecast.StepSeconds, q.Strategy)
			}
		}
	}
}

// An update by the host moves the gradient down and, where weights rest on the device,
// the weights up: no state moves.
func TestHostUpdatesMoveGradientsAndWeights(t *testing.T) {
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, DType: dtype.BF16, Task: graph.Train})
	for _, streamed := range []bool{false, true} {
		goal := tiny.AdamW(1, false)
		goal.Master = true // so that nobody needs to read the weights
		p, err := planner.Build(m, goal, tiny.Site(1<<30), func(slabs, blocks int) strategy.Choice {
			c := strategy.Uniform(streamed, true, strategy.SaveAll, 2)(slabs, blocks)
			for range slabs {
				c.UpdatedByCPU = append(c.UpdatedByCPU, true)
			}
			return c
		})
		if err != nil {
			t.Fatal(err)
		}
		moved := map[plan.Class]map[plan.Lane]int64{plan.Gradient: {}, plan.Weight: {}, plan.Master: {}, plan.State: {}}
		for _, s := range p.Instructions {
			if of := moved[p.Buffers[s.Src].Class]; s.Verb == plan.Move && of != nil {
				of[s.Lane] += p.Buffers[s.Src].Bytes
			}
		}
		var gradients, weights int64
		for _, s := range p.Slabs {
			gradients, weights = gradients+p.Optimizer.GradType.Bytes(s.Elements), weights+s.WeightBytes
		}
		if moved[plan.Gradient][plan.Out] != gradients || moved[plan.Weight][plan.Out] != 0 || len(moved[plan.Master])+len(moved[plan.State]) > 0 {
			t.Errorf("streamed %t: moved %v, gradients take %d", streamed, moved, gradients)
		}
		if up := moved[plan.Weight][plan.In]; !streamed && up != weights || streamed && up < weights {
			t.Errorf("streamed %t: %d bytes of weights went up, there are %d", streamed, up, weights)
		}
	}
}

func TestWhoUpdates(t *testing.T) {
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, Task: graph.Train})
	for _, who := range strategy.Updaters {
		goal := tiny.AdamW(2, true)
		goal.Constraints.Updates = who
		p, err := planner.Make(m, goal, tiny.Site(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		host, device := updatesBy(p)
		if (host > 0) != (who != strategy.ByDevice) || (device > 0) != (who != strategy.ByCPU) {
			t.Errorf("asking for %s: %d updates by the host, %d by the device", who, host, device)
		}
	}
	whole, elsewhere, nothing := tiny.AdamW(1, false), tiny.AdamW(1, false), planner.Goal{MicroBatches: 1}
	whole.Optimizer.Rule = optim.Adafactor
	elsewhere.Constraints.State = plan.OnDevice
	for says, goal := range map[string]planner.Goal{"whole params": whole, "to be stored on device": elsewhere, "nothing is trained": nothing} {
		goal.Constraints.Updates = strategy.ByCPU
		if _, err := planner.Make(m, goal, tiny.Site(1<<20)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
