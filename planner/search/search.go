package search

import (
	"cmp"
	"fmt"

	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/spec"
)

// Make finds the fastest plan that fits the site. The model must be traced for
// the micro-batch wanted. When nothing fits the error is a *FitError.
func Make(m *spec.Model, g goal.Goal, site goal.Site) (*plan.Plan, error) {
	b, err := layout.New(m, g, site)
	if err != nil {
		return nil, err
	}
	t := newTarget(b)
	s := newSearch(t.itself())
	best, err := s.deepSearch()
	if err != nil {
		return nil, err
	}
	p, err := t.writer.Plan(best.choice)
	if err != nil {
		return nil, err
	}
	pass.Order(p)
	if best.captured && p.CanCapture() {
		p = p.Capture()
	}
	if err := g.Constraints.SatisfiedBy(m, p); err != nil {
		return nil, fmt.Errorf("planning %s: %w", m.Name, err)
	}
	if p.Rejected, err = s.rejected(best); err != nil {
		return nil, err
	}
	p.Strategy, p.Strategies, p.Reason = strategy.Title(best.choice), strategy.Names(best.choice), s.reason(best)
	p.Forecast = best.forecast
	return p, plan.Verify(p)
}

// search tries lines of mixes. Most are judged by an estimate; plans are written of those
// that may be better than the best so far.
type search struct {
	assessor
	tried    []attempt  // in order
	smallest *candidate // the one that takes least of the device
	best     *candidate // the fastest so far
}

func newSearch(f *scale) *search {
	return &search{assessor: assessor{scale: f, chooser: chooser{f.on[0], map[strategy.Mix]strategy.Choice{}}, made: map[strategy.Mix]*candidate{}}}
}

// attempt is a family and what came of it: the first that fits, or its leanest where
// none does or none can be better than the best.
type attempt struct {
	strategy.Line
	*candidate
}

// searchBudget bounds how many steps of plans are written once something fits. It only
// matters for models that are very deep and do not repeat themselves.
const searchBudget = 2_000_000

// reportBudget bounds how many steps of plans are written of choices that cannot win,
// to tell what they would take.
const reportBudget = 20_000

// run searches all families, then climbs from the best.
func (s *search) run() (*candidate, error) {
	for _, f := range s.allLines() {
		if s.best != nil && s.written > searchBudget {
			break // something fits, and that must do
		}
		if err := s.try(f); err != nil {
			return nil, err
		}
	}
	if s.best == nil {
		if err := s.findSmallest(); err != nil {
			return nil, err
		}
		return nil, s.fitError()
	}
	return s.best, s.climbAll()
}

// lines are the families of all ways. Those come first in which everything stays: where
// one fits, it is seldom beaten, and the others are given up at a glance.
func (s *search) allLines() (list []strategy.Line) {
	var rest []strategy.Line
	for _, w := range s.parallelisms() {
		of := s.linesOf(w)
		stay := min(2, len(of)) // everything kept, and some recomputed
		list, rest = append(list, of[:stay]...), append(rest, of[stay:]...)
	}
	return append(list, rest...)
}

// findLeanest finds the one of what was tried that lacks least, now that it is known
// that none fits.
func (s *search) findSmallest() error {
	for _, a := range s.tried {
		if err := s.fit(a.candidate); err != nil {
			return err
		}
		s.noteSmallest(a.candidate)
	}
	return s.measureExactly(s.smallest)
}

// try forecasts what comes of a family.
func (s *search) try(f strategy.Line) error {
	lean, err := s.estimate(f.Mix(f.Size))
	if err != nil {
		return err
	}
	c, err := s.outcome(f, lean)
	s.tried = append(s.tried, attempt{f, c})
	if err != nil {
		return err
	}
	return s.time(c)
}

// outcome is the first choice of a family that fits, or its leanest, where none does or
// none can be better than the best so far. The standard plan is always weighed: reports
// compare with it.
func (s *search) outcome(f strategy.Line, lean *candidate) (*candidate, error) {
	first, may, err := s.mayWin(f, lean)
	if err != nil || !may && f.Size > 0 && s.written+s.b.writer.UsualLength() >= reportBudget {
		return lean, err
	}
	if err := s.fit(lean); err != nil {
		return lean, err
	}
	switch {
	case f.Size == 0:
		return lean, s.measureExactly(lean)
	case !may || !lean.fits:
		return lean, nil
	}
	return s.firstThatFits(f, first, lean)
}

// mayWin says whether some choice of a family may fit and be better than the best so
// far, and which is the first that may fit.
func (s *search) mayWin(f strategy.Line, lean *candidate) (first int, may bool, err error) {
	if !lean.fits {
		return 0, false, nil
	}
	if first, err = s.firstThatMay(f, lean); err != nil {
		return 0, false, err
	}
	c, err := s.estimate(f.Mix(first))
	return first, err == nil && s.beats(c), err
}

// leaner remembers the candidate that lacks least of a device, and among those that
// lack nothing of it, least of the host or the disk.
func (s *search) noteSmallest(c *candidate) {
	if s.smallest == nil || cmp.Or(cmp.Compare(max(c.lacks(), 0), max(s.smallest.lacks(), 0)), cmp.Compare(s.lack(c.demand), s.lack(s.smallest.demand))) < 0 {
		s.smallest = c
	}
}

// time forecasts a candidate that fits, unless what binds it already takes longer
// than the best so far, and remembers the best.
func (s *search) time(c *candidate) error {
	if !c.fits || !s.beats(c) {
		return nil
	}
	if c.bound {
		if err := s.simulate(c); err != nil {
			return err
		}
	}
	if s.beats(c) {
		s.best = c
	}
	return nil
}

// worth is how much shorter an iteration must be to be worth a different plan: a
// forecast is not exact to the last digit.
const worthwhile = 0.999

// worthLeaving is how much of the time must be left where something leaves the device, or
// goes to the disk, that does not in another plan: forecasts of such plans are not exact to
// less.
const worthLeaving = 0.95

// worthOver is how much of the time of b is left where a, which may do more, is worth it.
func worthOver(a, b *candidate) float64 {
	if strategy.Count(a.choice.OnDisk) > 0 && strategy.Count(b.choice.OnDisk) == 0 || !a.choice.StaysOnDevice() && b.choice.StaysOnDevice() {
		return worthLeaving
	}
	return worthwhile
}

// better is faster by what its doing more is worth; among those as good as equal, the
// simpler, then the one with less memory.
func better(a, b *candidate) bool {
	switch {
	case a.seconds < worthOver(a, b)*b.seconds:
		return true
	case b.seconds < worthOver(b, a)*a.seconds:
		return false
	case a.mix.Effort() != b.mix.Effort():
		return a.mix.Effort() < b.mix.Effort()
	case a.seconds != b.seconds:
		return a.seconds < b.seconds
	}
	return a.Device < b.Device
}

// beats says whether a candidate is to be taken instead of the best so far: where shares
// are given, one in which everything stays before one in which something leaves.
func (s *search) beats(c *candidate) bool {
	if s.best == nil {
		return true
	}
	if b := s.b.Goal.Bounds; b.SaveBelow+b.StayBelow > 0 && c.choice.StaysOnDevice() != s.best.choice.StaysOnDevice() {
		return c.choice.StaysOnDevice()
	}
	return better(c, s.best)
}
