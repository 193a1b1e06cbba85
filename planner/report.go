package planner

import (
	"fmt"
	"sort"

	"spillway/plan"
	"spillway/units"
)

// title says what is special about a choice.
func (c Choice) title() string {
	name := wayOf(c).title(c.devices())
	also := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); name == "standard" {
			name = text
		} else {
			name += ", " + text
		}
	}
	switch streamed := count(c.Streamed); {
	case streamed > 0:
		also("cpu offload, window %d, %d of %d slabs streamed", c.Prefetch, streamed, len(c.Streamed))
	case count(c.OffloadedState) > 0:
		also("optimizer offload, %d of %d slabs", count(c.OffloadedState), len(c.OffloadedState))
	}
	if n := c.slabsUpdatedByCPU(); n > 0 {
		also("%d of %d slabs updated by the host", n, len(c.UpdatedByCPU))
	}
	if n := c.delayedSlabs(); n > 0 {
		also("%d of %d slabs updated in the next iteration", n, len(c.OffloadedState))
	}
	if n := count(c.OnDisk); n > 0 {
		also("%d of %d slabs on disk", n, len(c.OnDisk))
	}
	var of [levelCount]int
	for _, l := range c.Level {
		of[l]++
	}
	if n := of[SaveAttention] + of[SaveNone]; n > 0 {
		also("checkpointing %d of %d blocks", n, len(c.Level))
	} else if of[SaveMatmuls] > 0 {
		also("checkpointing cheap values of %d of %d blocks", of[SaveMatmuls], len(c.Level))
	}
	if of[SaveAttention] > 0 {
		also("attention of %d kept", of[SaveAttention])
	}
	if n := count(c.OffloadedActivations); n > 0 {
		also("activations of %d of %d blocks on the host", n, len(c.OffloadedActivations))
	}
	return name
}

// reason says in one line why the plan is what it is.
func (s *search) reason(best *candidate) string {
	if s.b.goal.Constraints.any() {
		return "the fastest of what was insisted on"
	}
	standard := s.tried[0].candidate
	if best.mix != standard.mix && standard.fits {
		return fmt.Sprintf("forecast %.4g s per iteration against %.4g s with everything on %s", best.seconds, standard.seconds, s.b.site.Device)
	}
	return fmt.Sprintf("everything %s %v, %s has %v", standard.verb(), units.Bytes(standard.device), s.b.site.Device, standard.capacity())
}

// room is what a candidate may take of the device.
func (c *candidate) capacity() string {
	if c.share < 1 {
		return fmt.Sprintf("%v for it, %.4g%% of its budget", units.Bytes(c.budget), 100*c.share)
	}
	return units.Bytes(c.budget).String()
}

// rejected lists, for each sort of strategy, the best other candidate and what
// spoke against it.
func (s *search) rejected(best *candidate) ([]plan.Alternative, error) {
	of := map[string]attempt{}
	var sorts []string
	for _, a := range s.tried {
		name := a.choice.strategySort()
		if a.choice.title() == best.choice.title() {
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
	sort.SliceStable(list, func(i, j int) bool { return list[i].Fits && !list[j].Fits })
	return list, nil
}

// told is what a report says of an attempt that was given up: the first of its family
// that fits, with its forecast, as long as not too many steps are written to find out.
func (s *search) reported(a attempt, until int) (*candidate, error) {
	c := a.candidate
	switch {
	case c.extrapolated || c.fits && !c.bound || s.written+s.b.usualSize.steps > until:
		return c, nil
	case !c.fits:
		return c, s.measureExactly(c)
	}
	if err := s.fit(c); err != nil || !c.fits {
		return c, err
	}
	first, err := s.firstThatMay(a.family, c)
	if err != nil {
		return nil, err
	}
	if c, err = s.firstThatFits(a.family, first, c); err != nil || !c.bound {
		return c, err
	}
	return c, s.simulate(c)
}

// preferred: what fits before what does not, what was forecast before what was not,
// then the faster or the leaner.
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

// sort is the kind of strategy, without numbers.
func (c Choice) strategySort() string {
	name := wayOf(c).title(c.devices())
	switch {
	case count(c.OnDisk) > 0:
		name += ", disk offload"
	case count(c.Streamed) > 0:
		name += ", cpu offload"
	case count(c.OffloadedState) > 0:
		name += ", optimizer offload"
	case count(c.OffloadedActivations) > 0:
		name += ", activation offload"
	case c.Level[0] != SaveAll:
		name += ", checkpointing"
	}
	return name
}

func (s *search) option(c, best *candidate) plan.Alternative {
	o := plan.Alternative{Strategy: c.choice.title(), Fits: c.fits, PeakBytes: c.peak, StepSeconds: c.seconds}
	switch {
	case c.fits && c.bound:
		o.LowerBound = true
		o.Reason = fmt.Sprintf("slower: at best %.4g s per iteration against %.4g s", c.seconds, best.seconds)
	case c.fits && c.extrapolated:
		o.Reason = fmt.Sprintf("slower: about %.4g s per iteration against %.4g s", c.seconds, best.seconds)
	case c.fits:
		o.Reason = fmt.Sprintf("slower: %.4g s per iteration against %.4g s", c.seconds, best.seconds)
	case c.lacks() > 0:
		o.Reason = fmt.Sprintf("%s %v of %s, which has %v", c.verb(), units.Bytes(c.device), s.b.site.Device, c.capacity())
	case c.disk > s.b.site.Disk.Budget:
		o.Reason = fmt.Sprintf("%s %v of disk, %v are free", c.verb(), units.Bytes(c.disk), units.Bytes(s.b.site.Disk.Budget))
	default:
		o.Reason = fmt.Sprintf("%s %v of host memory, %v are free", c.verb(), units.Bytes(c.host), units.Bytes(s.b.site.HostBudget))
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

// fitError describes what the leanest plan lacks.
func (s *search) fitError() error {
	e := &FitError{Model: s.b.model.Name, Tier: plan.OnDevice, Needed: s.smallest.device, Budget: s.smallest.budget,
		NeededHost: s.smallest.host, BudgetHost: s.b.site.HostBudget}
	if e.Needed <= e.Budget {
		e.Tier, e.Needed, e.Budget = plan.OnHost, e.NeededHost, e.BudgetHost
	}
	if e.Needed <= e.Budget {
		e.Tier, e.Needed, e.Budget = plan.OnDisk, s.smallest.disk, s.b.site.Disk.Budget
	}
	return e
}
