package search

import (
	"cmp"
	"fmt"

	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/strategy"
	"spillway/units"
)

// Outcome is what came of a search in which one strategy was tried.
type Outcome struct {
	Choice strategy.Choice
	Fits   bool
	demand
	Peak     map[plan.Tier]int64
	Forecast *plan.Forecast // where it fits
	Reason   string         // why it does not
}

// Alone finds the best plan of a strategy by itself; of one that shares the work of several
// devices, whatever else it does. Where none fits the outcome is the smallest.
func Alone(b *layout.Layout, st *strategy.Strategy) (Outcome, error) {
	s := newSearch(newTarget(b).itself())
	lines := s.linesOf(strategy.Parallelism(st.Name))
	if st.Spread == nil {
		lines = st.Alone(b.Facts())
	}
	for _, line := range lines {
		if err := s.try(line); err != nil {
			return Outcome{}, err
		}
	}
	if s.best == nil {
		if err := s.findSmallest(); err != nil {
			return Outcome{}, err
		}
	}
	c := cmp.Or(s.best, s.smallest)
	o := Outcome{Choice: c.choice, Fits: c.fits, demand: c.demand, Peak: c.peak, Forecast: c.forecast}
	if !c.fits {
		o.Reason = s.option(c, c).Reason
	}
	return o, nil
}

// Standard is the plan that keeps everything on one device, whatever that takes. It has no
// forecast.
func Standard(b *layout.Layout) (*plan.Plan, error) {
	t := newTarget(b)
	p, err := t.writer.Plan((&chooser{b: t}).choice(strategy.Mix{}))
	if err != nil {
		return nil, err
	}
	p.Strategy, p.Strategies, p.Reason = strategy.Standard.Title, []string{strategy.Standard.Name}, fmt.Sprintf("everything needs %v", units.Bytes(p.Arenas[0].Bytes))
	return p, nil
}
