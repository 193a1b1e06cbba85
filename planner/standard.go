package planner

import (
	"fmt"

	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/spec"
	"spillway/units"
)

// Standard is the plan that keeps everything on one device, whatever that takes: it
// may be more than the site has. It has no forecast.
func (r Request) Standard() (*plan.Plan, *spec.Model, error) {
	m, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, nil, err
	}
	r.Goal.Constraints = strategy.Constraints{}
	b, err := newBlueprint(m, r.Goal, r.Site)
	if err != nil {
		return nil, nil, err
	}
	p, err := b.emit((&search{b: b}).choice(strategy.Mix{}))
	if err != nil {
		return nil, nil, err
	}
	p.Strategy, p.Strategies, p.Reason = strategy.Standard.Title, []string{strategy.Standard.Name}, fmt.Sprintf("everything needs %v", units.Bytes(p.Arenas[0].Bytes))
	return p, m, nil
}
