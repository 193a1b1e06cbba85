package search

import (
	"cmp"
	"fmt"
	"slices"

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

// AnyFits is nil when some choice fits, else a *FitError. A line fits if its smallest choice
// does for which the host has memory; the smallest lines come last. No fast plan is looked for, so it is quick.
func AnyFits(b *layout.Layout) error {
	s := newSearch(newTarget(b).itself())
	for _, w := range slices.Backward(s.parallelisms()) {
		for _, f := range slices.Backward(s.linesOf(w)) {
			f, c, err := s.withinHost(f, nil)
			if err != nil {
				return err
			}
			if f, c, err = s.fitWithinHost(f, c); err != nil || c.fits {
				return err
			}
			if c, err = s.leastOfHost(f, c); err != nil {
				return err
			}
			s.noteSmallest(c)
		}
	}
	if err := s.measureExactly(s.smallest); err != nil {
		return err
	}
	return s.fitError()
}

// MayFit is false where nothing fits by what homes alone take: what AnyFits says no to after it
// has written plans. It is quicker still, and says nothing of what is missing.
func MayFit(b *layout.Layout) (bool, error) {
	s := newSearch(newTarget(b).itself())
	for _, w := range slices.Backward(s.parallelisms()) {
		for _, f := range slices.Backward(s.linesOf(w)) {
			if _, c, err := s.withinHost(f, nil); err != nil || c.fits {
				return c != nil && c.fits, err
			}
		}
	}
	return false, nil
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
