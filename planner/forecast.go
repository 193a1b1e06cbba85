package planner

import (
	"context"
	"fmt"
	"time"

	"spillway/device"
	"spillway/device/sim"
	"spillway/executor"
	"spillway/plan"
)

// forecast carries the plan, whose lanes are ordered, out on a virtual device and
// reports what it took.
func forecast(p *plan.Plan, site Site) (*plan.Forecast, error) {
	dev := sim.NewVirtual(site.Device, 0, site.Alignment, site.Rates)
	dev.NoScratch = true
	e, err := executor.New(p, []device.Device{dev})
	if err != nil {
		return nil, fmt.Errorf("forecasting: %w", err)
	}
	defer e.Close()
	if err := e.Iterate(context.Background(), executor.Numbers{}); err != nil {
		return nil, fmt.Errorf("forecasting: %w", err)
	}
	f := &plan.Forecast{StepSeconds: dev.Elapsed().Seconds(), Busy: map[string]float64{}, PeakBytes: p.Peak()}
	f.BytesIn, f.BytesOut = e.Counters().BytesIn, e.Counters().BytesOut
	var most time.Duration
	for name, busy := range dev.Busy() {
		resource := resources[plan.Lane(name)]
		f.Busy[resource] = busy.Seconds() / max(f.StepSeconds, 1e-12)
		if busy > most || busy == most && resource < f.Bound {
			most, f.Bound = busy, resource
		}
	}
	f.AtBest = most.Seconds() / max(f.StepSeconds, 1e-12)
	f.TokensPerSec = float64(p.Rows*p.Seq*int64(p.Micros)) / max(f.StepSeconds, 1e-12)
	f.Flops = flops(p)
	return f, nil
}

// resources names what each lane keeps busy.
var resources = map[plan.Lane]string{plan.Compute: "compute", plan.In: "link to device", plan.Out: "link to host"}

// flops of an iteration.
func flops(p *plan.Plan) (sum float64) {
	per := make([]float64, len(p.Programs))
	for i, g := range p.Programs {
		per[i] = g.Graph.Cost().Flops
	}
	for _, s := range p.Steps {
		if s.Verb == plan.Run {
			sum += per[s.Program]
		}
	}
	return sum
}
