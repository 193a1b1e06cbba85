package search

import (
	"encoding/json"
	"fmt"

	"spillway/plan"
	"spillway/planner/emit"
	"spillway/planner/forecast"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/spec"
)

// Build makes the plan of one choice, whatever else might fit or be faster. The choice is made
// knowing how many slabs and blocks there are.
func Build(m *spec.Model, g goal.Goal, site goal.Site, choose func(slabs, blocks int) strategy.Choice) (*plan.Plan, error) {
	b, err := layout.New(m, g, site)
	if err != nil {
		return nil, err
	}
	c := choose(len(b.Slabs.List), len(m.Blocks))
	if c.OffloadedActivations == nil {
		c.OffloadedActivations = make([]bool, len(m.Blocks))
	}
	if c.OnDisk == nil {
		c.OnDisk = make([]bool, len(b.Slabs.List))
	}
	if c.UpdatedByCPU == nil {
		c.UpdatedByCPU = make([]bool, len(b.Slabs.List))
	}
	if len(c.UpdatedByCPU) != len(b.Slabs.List) || len(c.Streamed) != len(b.Slabs.List) || len(c.OffloadedState) != len(b.Slabs.List) || len(c.OnDisk) != len(b.Slabs.List) || len(c.Level) != len(m.Blocks) || len(c.OffloadedActivations) != len(m.Blocks) {
		return nil, fmt.Errorf("the choice is for %d slabs and %d blocks, the model has %d and %d", len(c.Streamed), len(c.Level), len(b.Slabs.List), len(m.Blocks))
	}
	c = b.Allowed(c)
	p, err := write(emit.NewWriter(b), c)
	if err != nil {
		return nil, err
	}
	p, f, err := forecast.CaptureIfFaster(p, site)
	if err != nil {
		return nil, err
	}
	p.Forecast, p.Reason = f, "it was asked for"
	return p, plan.Verify(p)
}

// write writes the plan of a choice, with its lanes ordered.
func write(w *emit.Writer, c strategy.Choice) (*plan.Plan, error) {
	p, err := w.Plan(c)
	if err != nil {
		return nil, err
	}
	pass.Order(p)
	p.Strategy, p.Strategies = strategy.Title(c), strategy.Names(c)
	p.Choices, err = json.Marshal(c)
	return p, err
}

// WithEvaluation is a training plan with a phase that evaluates in the memory that it has.
func WithEvaluation(p *plan.Plan, site goal.Site) (*plan.Plan, error) {
	p, err := emit.WithEvaluation(p, site.Kernels)
	if err != nil {
		return nil, err
	}
	if _, err := forecastPhase(p, &p.Phases[len(p.Phases)-1], site); err != nil {
		return nil, err
	}
	if p.Forecast != nil {
		whole := *p.Forecast
		whole.PeakBytes, p.Forecast = p.Peak(), &whole
	}
	return p, plan.Verify(p)
}

// forecastPhase says how long a phase of a plan takes, and gives the view of it.
func forecastPhase(p *plan.Plan, ph *plan.Phase, site goal.Site) (*plan.Plan, error) {
	view, err := p.Phase(ph.Name)
	if err != nil {
		return nil, err
	}
	f, err := forecast.Of(view, site)
	if err != nil {
		return nil, err
	}
	ph.Seconds = f.StepSeconds
	return view, nil
}
