package planner

import (
	"fmt"

	"spillway/plan"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/spec"
)

// Build makes the plan of one choice, whatever else might fit or be faster: a
// strategy the user insists on, or one a test wants. The choice is made knowing
// how many slabs and blocks there are.
func Build(m *spec.Model, g Goal, site Site, choose func(slabs, blocks int) strategy.Choice) (*plan.Plan, error) {
	b, err := newBlueprint(m, g, site)
	if err != nil {
		return nil, err
	}
	c := choose(len(b.slabs.list), len(m.Blocks))
	if c.OffloadedActivations == nil {
		c.OffloadedActivations = make([]bool, len(m.Blocks))
	}
	if c.OnDisk == nil {
		c.OnDisk = make([]bool, len(b.slabs.list))
	}
	if c.UpdatedByCPU == nil {
		c.UpdatedByCPU = make([]bool, len(b.slabs.list))
	}
	if len(c.UpdatedByCPU) != len(b.slabs.list) || len(c.Streamed) != len(b.slabs.list) || len(c.OffloadedState) != len(b.slabs.list) || len(c.OnDisk) != len(b.slabs.list) || len(c.Level) != len(m.Blocks) || len(c.OffloadedActivations) != len(m.Blocks) {
		return nil, fmt.Errorf("the choice is for %d slabs and %d blocks, the model has %d and %d", len(c.Streamed), len(c.Level), len(b.slabs.list), len(m.Blocks))
	}
	c = b.allowed(c)
	p, err := b.emit(c)
	if err != nil {
		return nil, err
	}
	pass.Order(p)
	p, f, err := captureIfFaster(p, site)
	if err != nil {
		return nil, err
	}
	p.Forecast = f
	p.Strategy, p.Strategies, p.Reason = strategy.Title(c), strategy.Names(c), "it was asked for"
	return p, plan.Verify(p)
}
