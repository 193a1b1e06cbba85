// Package search finds the fastest plan that fits.
//
// A candidate is assessed in three steps, each dearer than the one before: an estimate (what
// its homes take, and what matmuls or transfers take alone), a draft (the plan, and whether
// it fits), a forecast (the plan on the simulator). Most are ruled out by an estimate.
//
//  1. Lines: strategies offer mixes from most memory to least; the first of each that fits is
//     forecast.
//
//  2. Climbing: from the best, numbers of the mix go up and down as long as that is faster.
//
//  3. Deep models are searched on miniatures with fewer of their equal blocks first.
//
//     p, err := search.Make(model, goal, site)
package search

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/strategy"
	"spillway/spec"
)

// Make finds the fastest plan that fits the site. The model must be traced for the
// micro-batch wanted. When nothing fits the error is a *goal.FitError.
func Make(m *spec.Model, g goal.Goal, site goal.Site) (*plan.Plan, error) {
	p, err := makeOn(m, g, site)
	if err != nil && !errors.Is(err, ErrSlower) || site.Devices < 2 || g.Constraints.Parallelism != "" || len(g.Constraints.Places) > 0 {
		return p, err
	}
	return oneAlone(p, err, m, g, site)
}

// ErrSlower says that all plans that fit take longer than Bounds.Below.
var ErrSlower = errors.New("no plan is as fast as that")

// oneAlone is a plan for several devices, or where that is faster, one for one of them alone: a search for several tries little
// of what one can do. Where the first is slower than was asked for, there is only its error.
func oneAlone(p *plan.Plan, slower error, m *spec.Model, g goal.Goal, site goal.Site) (*plan.Plan, error) {
	site.Devices = 1
	b, err := layout.New(m, g, site)
	if err != nil {
		return p, slower // such as bounds that rule one out
	}
	most := g.Bounds.Below
	if p != nil {
		most = worthwhile * p.Forecast.StepSeconds
	}
	if least, err := LeastSeconds(b); err != nil || least >= most {
		return p, cmp.Or(err, slower)
	}
	alone, err := makeOn(m, g, site)
	var misfit *goal.FitError
	switch {
	case errors.As(err, &misfit) || errors.Is(err, ErrSlower):
		return p, slower
	case err != nil:
		return nil, err
	case alone.Forecast.StepSeconds >= most:
		return p, slower
	}
	return alone, nil
}

func makeOn(m *spec.Model, g goal.Goal, site goal.Site) (*plan.Plan, error) {
	b, err := layout.New(m, g, site)
	if err != nil {
		return nil, err
	}
	t := newTarget(b)
	s := newSearch(t.itself())
	if _, err := s.deepSearch(); err != nil {
		return nil, err
	}
	if err := s.prefetchBatch(); err != nil {
		return nil, err
	}
	best := s.best
	p, err := write(t.writer, best.choice)
	if err != nil {
		return nil, err
	}
	if best.captured && p.CanCapture() {
		p = p.Capture()
	}
	if err := g.Constraints.SatisfiedBy(m, p); err != nil {
		return nil, fmt.Errorf("planning %s: %w", m.Name, err)
	}
	if p.Rejected, err = s.rejected(best); err != nil {
		return nil, err
	}
	p.Forecast, p.Reason = best.forecast, s.reason(best)
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

// attempt is a line and what came of it: the first candidate that fits, or the smallest
// where none does or none can be better than the best.
type attempt struct {
	strategy.Line
	*candidate
}

// searchBudget bounds how many instructions of plans are written once something fits. It only
// matters for models that are very deep and do not repeat themselves.
const searchBudget = 2_000_000

// reportBudget bounds how many instructions are written of plans that cannot win, to report
// what they would take.
const reportBudget = 20_000

// run searches all lines, then climbs from the best.
func (s *search) run() (*candidate, error) {
	for _, f := range s.allLines() {
		if s.best != nil && s.written > searchBudget {
			break // something fits, and that must do
		}
		if err := s.try(f); err != nil {
			return nil, err
		}
	}
	if s.best == nil && s.b.Goal.Bounds.Below > 0 {
		return nil, ErrSlower
	}
	if s.best == nil {
		if err := s.findSmallest(); err != nil {
			return nil, err
		}
		return nil, s.fitError()
	}
	if err := s.spareDisk(); err != nil {
		return nil, err
	}
	if err := s.climbAll(); err != nil {
		return nil, err
	}
	return s.best, s.overlapActivations()
}

// allLines lists the lines to search: first those in which everything stays on the device, saved or some of it recomputed.
// Where one fits it is seldom beaten, and estimates rule the others out. One of several devices is seldom faster alone, so
// what it offers beyond the standard plan comes last.
func (s *search) allLines() (lines []strategy.Line) {
	var rest, alone []strategy.Line
	for _, p := range s.parallelisms() {
		of := s.linesOf(p)
		if p == "" && s.b.Facts().Devices > 1 {
			lines, alone = append(lines, of[0]), of[1:]
			continue
		}
		stay := min(2, len(of))
		lines, rest = append(lines, of[:stay]...), append(rest, of[stay:]...)
	}
	return slices.Concat(lines, rest, alone)
}

// try forecasts what comes of a line.
func (s *search) try(f strategy.Line) error {
	f, smallest, err := s.withinHost(f, nil)
	if err != nil {
		return err
	}
	c, err := s.outcome(f, smallest)
	s.tried = append(s.tried, attempt{f, c})
	if err != nil {
		return err
	}
	return s.time(c)
}

// outcome is the first candidate of a line that fits, or the smallest where none does or none
// can be better than the best so far. The standard plan is always measured exactly: reports
// compare with it.
func (s *search) outcome(f strategy.Line, smallest *candidate) (*candidate, error) {
	first, may := 0, false // may: some candidate may fit and be better, the first at that index
	if smallest.fits {
		var err error
		if first, err = s.firstThatMay(f, smallest); err != nil {
			return smallest, err
		}
		c, err := s.estimate(f.Mix(first))
		if err != nil {
			return smallest, err
		}
		may = s.beats(c)
	}
	if !may && (s.b.Goal.Bounds.Below > 0 || f.Size > 0 && s.written+s.b.writer.UsualLength() >= reportBudget) {
		return smallest, nil // of a search for something faster nothing else is reported
	}
	f, smallest, err := s.fitWithinHost(f, smallest)
	if err != nil {
		return smallest, err
	}
	switch {
	case f.Size == 0:
		return smallest, s.measureExactly(smallest)
	case !may || !smallest.fits:
		return smallest, nil
	}
	return s.firstThatFits(f, first, smallest)
}

// time forecasts a candidate that fits, unless its lower bound already takes longer than the
// best so far, and remembers the best.
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

// worthwhile is the share of the time that a different plan may take to be worth it: a forecast
// is not exact to the last digit.
const worthwhile = 0.999

// worthLeaving is the same where something leaves the device or goes to the disk that does not
// in the other plan: forecasts of such plans are less exact.
const worthLeaving = 0.95

// worthSharing is the same where several devices share what one alone can do: they wait for each other more than forecasts say, and
// others may want them.
const worthSharing = 0.9

// worthOver is the share of the time of b that a may take to be worth it.
func worthOver(a, b *candidate) float64 {
	if a.choice.Devices > 1 && b.choice.Devices <= 1 {
		return worthSharing
	}
	if strategy.Count(a.choice.OnDisk) > 0 && strategy.Count(b.choice.OnDisk) == 0 || !a.choice.StaysOnDevice() && b.choice.StaysOnDevice() {
		return worthLeaving
	}
	return worthwhile
}

// better says whether a is faster than b by what is worthwhile; among those about equally fast
// it prefers the simpler, then the one with less memory.
func better(a, b *candidate) bool {
	simpler := a.mix.Simpler(b.mix)
	switch {
	case a.seconds < worthOver(a, b)*b.seconds:
		return true
	case b.seconds < worthOver(b, a)*a.seconds:
		return false
	case simpler != 0:
		return simpler < 0
	case a.seconds != b.seconds:
		return a.seconds < b.seconds
	}
	return a.Device < b.Device
}

// beats says whether a candidate is to be taken instead of the best so far: where shares
// are given, one in which everything stays before one in which something leaves.
func (s *search) beats(c *candidate) bool {
	if below := s.b.Goal.Bounds.Below; below > 0 && c.seconds >= below {
		return false
	}
	if s.best == nil {
		return true
	}
	if b := s.b.Goal.Bounds; b.SaveBelow+b.StayBelow > 0 && c.choice.StaysOnDevice() != s.best.choice.StaysOnDevice() {
		return c.choice.StaysOnDevice()
	}
	return better(c, s.best)
}
