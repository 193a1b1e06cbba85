package search

import (
	"fmt"
	"sort"

	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/strategy"
	"spillway/units"
)

// reason says in one line why the plan is what it is.
func (s *search) reason(best *candidate) string {
	if s.b.Goal.Constraints.Any() {
		return "the fastest plan that satisfies the constraints"
	}
	standard := s.tried[0].candidate
	if best.mix != standard.mix && standard.fits {
		return fmt.Sprintf("forecast %s per step against %s with everything on %s", units.Seconds(best.seconds), units.Seconds(standard.seconds), s.b.Site.Device.Name)
	}
	return fmt.Sprintf("everything %s %v, %s has %v", standard.verb(), units.Bytes(standard.Device), s.b.Site.Device.Name, standard.capacity())
}

// capacity is what a candidate may take of the device, in words.
func (c *candidate) capacity() string {
	if c.share < 1 {
		return fmt.Sprintf("%v for it, %.4g%% of its budget", units.Bytes(c.budget), 100*c.share)
	}
	return units.Bytes(c.budget).String()
}

// rejected lists, for each group of strategies, the best other candidate and why it was not
// taken.
func (s *search) rejected(best *candidate) ([]plan.Alternative, error) {
	of := map[string]attempt{}
	var sorts []string
	for _, a := range s.tried {
		name := strategy.Group(a.choice)
		if strategy.Title(a.choice) == strategy.Title(best.choice) {
			continue // the same, or as good as
		}
		if had, ok := of[name]; !ok {
			sorts = append(sorts, name)
			of[name] = a
		} else if preferred(a.candidate, had.candidate) {
			of[name] = a
		}
	}
	var list []plan.Alternative
	until := s.written + reportBudget
	for _, name := range sorts {
		c, err := s.reported(of[name], until)
		if err != nil {
			return nil, err
		}
		if c.written || !c.fits { // else nothing is known
			list = append(list, s.option(c, best))
		}
	}
	return fastestOfEach(list, strategy.Title(best.choice)), nil
}

// fastestOfEach lists those that fit before the others, and of those with the same title only the fastest: lines may lead to
// the same plan, also to the one that was taken.
func fastestOfEach(list []plan.Alternative, taken string) (each []plan.Alternative) {
	at := map[string]int{}
	for _, o := range list {
		i, listed := at[o.Strategy]
		switch {
		case o.Strategy == taken:
		case !listed:
			at[o.Strategy] = len(each)
			each = append(each, o)
		case o.Fits && (!each[i].Fits || o.StepSeconds < each[i].StepSeconds):
			each[i] = o
		}
	}
	sort.SliceStable(each, func(i, j int) bool { return each[i].Fits && !each[j].Fits })
	return each
}

// reported is what a report says of an attempt that was given up: the first of its line that
// fits, with its forecast, as long as not too many instructions are written to find out.
func (s *search) reported(a attempt, until int) (*candidate, error) {
	c := a.candidate
	switch {
	case c.extrapolated || c.fits && !c.bound || s.written+s.b.writer.UsualLength() > until:
		return c, nil
	case !c.fits:
		return c, s.measureExactly(c)
	}
	if err := s.fit(c); err != nil || !c.fits {
		return c, err
	}
	first, err := s.firstThatMay(a.Line, c)
	if err != nil {
		return nil, err
	}
	if c, err = s.firstThatFits(a.Line, first, c); err != nil || !c.bound {
		return c, err
	}
	return c, s.simulate(c)
}

// preferred says whether a report rather shows a than b: what fits before what does not, what was
// forecast before what was not, then the faster or the smaller.
func preferred(a, b *candidate) bool {
	if a.fits != b.fits {
		return a.fits
	}
	if a.fits && a.bound != b.bound {
		return b.bound
	}
	if a.fits {
		return better(a, b)
	}
	return a.lacks() < b.lacks()
}

// notFaster says why a candidate that fits was not taken. Of those that take nearly the same time the simplest is, so that
// one may even be a little faster.
func (c *candidate) notFaster(best *candidate, about string) string {
	word, took, least := "slower", units.Seconds(c.seconds), units.Seconds(best.seconds)
	switch {
	case took == least:
		word = "no faster"
	case c.seconds < best.seconds:
		word = "hardly faster"
	}
	return fmt.Sprintf("%s: %s%s per step against %s", word, about, took, least)
}

func (s *search) option(c, best *candidate) plan.Alternative {
	o := plan.Alternative{Strategy: strategy.Title(c.choice), Strategies: strategy.Names(c.choice), Fits: c.fits, PeakBytes: c.peak, StepSeconds: c.seconds}
	switch {
	case c.fits && c.bound:
		o.LowerBound = true
		o.Reason = c.notFaster(best, "at best ")
	case c.fits && c.extrapolated:
		o.Reason = c.notFaster(best, "about ")
	case c.fits:
		o.Reason = c.notFaster(best, "")
	case c.lacks() > 0:
		o.Reason = fmt.Sprintf("%s %v of %s, which has %v", c.verb(), units.Bytes(c.Device), s.b.Site.Device.Name, c.capacity())
	case c.Disk > s.b.Site.Disk.Budget:
		o.Reason = fmt.Sprintf("%s %v of disk, %v are free", c.verb(), units.Bytes(c.Disk), units.Bytes(s.b.Site.Disk.Budget))
	default:
		o.Reason = fmt.Sprintf("%s %v of host memory, %v are free", c.verb(), units.Bytes(c.Host), units.Bytes(s.b.Site.HostBudget))
	}
	return o
}

// verb says whether what a candidate needs is known exactly.
func (c *candidate) verb() string {
	switch {
	case c.extrapolated:
		return "needs about"
	case c.exact:
		return "needs"
	}
	return "needs at least"
}

// fitError describes what the smallest plan lacks.
func (s *search) fitError() error {
	e := &goal.FitError{Model: s.b.Model.Name, Tier: plan.OnDevice, Needed: s.smallest.Device, Budget: s.smallest.budget,
		Context: s.b.Site.Context, NeededHost: s.smallest.Host, BudgetHost: s.b.Site.HostBudget}
	if e.Needed <= e.Budget {
		e.Tier, e.Needed, e.Budget = plan.OnHost, e.NeededHost, e.BudgetHost
	}
	if e.Needed <= e.Budget {
		e.Tier, e.Needed, e.Budget = plan.OnDisk, s.smallest.Disk, s.b.Site.Disk.Budget
	}
	return e
}
