package advise

import (
	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/search"
	"spillway/planner/strategy"
	"spillway/spec"
)

// Standard is the plan that keeps everything on one device, whatever that takes: it may be more
// than the site has. It has no forecast.
func (r Request) Standard() (*plan.Plan, *spec.Model, error) {
	m, err := r.Trace(r.MicroBatchSize, r.Seq)
	if err != nil {
		return nil, nil, err
	}
	r.Goal.Constraints = strategy.Constraints{}
	b, err := layout.New(m, r.Goal, r.Site)
	if err != nil {
		return nil, nil, err
	}
	p, err := search.Standard(b)
	return p, m, err
}
