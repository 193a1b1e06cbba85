package search

import (
	"spillway/plan"
	"spillway/planner/emit"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// assessor finds out what candidates take, from cheap to dear: an estimate, the plan's
// memory, its forecast.
type assessor struct {
	*scale
	chooser
	made map[strategy.Mix]*candidate
	// eager: what leaves a device may keep its bytes for several runs, and memory is packed in other orders
	// where the first does not fit.
	eager bool

	trial     *draftPair // the draft written last
	last      *candidate // whose draft it is, while it can still be forecast
	written   int        // instructions of all plans written so far: the work of the search
	simulated int        // instructions of all plans forecast so far
}

// candidate is a choice and what its plan takes. The plan itself is not held: there may be
// hundreds, and it is quickly made again.
type candidate struct {
	mix    strategy.Mix
	choice strategy.Choice
	// written: the plan was, and demand is what is alive at once; else demand is what the homes
	// take. exact: demand is what the packed plan takes.
	written, exact bool
	extrapolated   bool // what it takes and how long follow from a miniature
	fits           bool // going by demand
	demand
	share   float64 // of a device it may fill
	homes   *plan.Plan
	arenas  []int64 // by arena: what the plan takes
	peak    map[plan.Tier]int64
	seconds float64 // of an iteration
	// bound: seconds is only a lower bound: what matmuls or transfers take alone.
	bound    bool
	forecast *plan.Forecast
	captured bool // iterations are captured as a graph
}

// estimate judges a mix by its homes and by what its matmuls and transfers take alone.
func (s *assessor) estimate(m strategy.Mix) (*candidate, error) {
	if c, ok := s.made[m]; ok {
		return c, nil
	}
	if err := s.b.Goal.Tries(nil); err != nil {
		return nil, err
	}
	c := &candidate{mix: m, choice: s.choice(m), bound: true}
	g, err := s.scale.estimate(c.choice)
	if err != nil {
		return nil, err
	}
	c.homes, c.seconds, c.share = g.homes, g.seconds, s.share(c.choice)
	s.measure(c, g.homes)
	s.made[m] = c
	return c, nil
}

// fit writes the plan of a candidate to see whether it fits. Buffers only get places where
// what is alive at once fits.
func (s *assessor) fit(c *candidate) error {
	if c.written {
		return nil
	}
	t, err := s.draft(c.choice)
	if err != nil {
		return err
	}
	s.measure(c, t.least())
	if c.written = true; c.fits {
		s.place(c, t)
	}
	return nil
}

// place packs a draft, with delayed reuse where that fits. What other candidates take is
// predicted from what this one takes without.
func (s *assessor) place(c *candidate, t *draftPair) {
	least := c.arenas
	for _, held := range s.heldRuns(t.drafts[0].HasOutgoing()) {
		c.choice.DelayedReuse, c.choice.HeldRuns = held > 0, 0
		if held > 1 {
			c.choice.HeldRuns = held
		}
		t.all(func(d *emit.Draft) { d.DelayReuse(held) })
		s.measure(c, t.least())
		for alive := c.fits; alive; {
			t.all(func(d *emit.Draft) { d.PackedBy = c.choice.PackedBy })
			last := !s.eager || c.choice.PackedBy == pass.Orders-1
			if held == 0 && last { // what it takes is said where it does not fit
				s.measure(c, t.packed())
			} else {
				s.measure(c, t.packedWithin(c.share))
			}
			if c.fits || last {
				break
			}
			c.choice.PackedBy++
		}
		if held > 0 && c.fits {
			c.arenas = least
		}
		if c.fits {
			break
		}
		c.choice.PackedBy = 0
	}
	s.last, c.exact = c, true
}

// heldRuns lists for how many runs what leaves the device may keep its bytes, the most first.
func (s *assessor) heldRuns(outgoing bool) []int {
	switch {
	case !outgoing:
		return []int{0}
	case s.eager:
		return []int{8, 5, 3, 2, 1, 0}
	}
	return []int{1, 0}
}

// measureExactly finds what the plan of a candidate takes exactly, though it does not fit.
func (s *assessor) measureExactly(c *candidate) error {
	if c.exact {
		return nil
	}
	t, err := s.draft(c.choice)
	if err != nil {
		return err
	}
	s.measure(c, t.packed())
	s.last, c.written, c.exact = c, true, true
	return nil
}

// draft writes the draft of a choice, and drops the one before.
func (s *assessor) draft(c strategy.Choice) (*draftPair, error) {
	if s.trial != nil { // its memory serves for those to come
		for i, d := range s.trial.drafts {
			if d != nil {
				s.on[i].writer.Drop(d)
			}
		}
	}
	err := s.b.Goal.Tries(&c)
	if err != nil {
		return nil, err
	}
	s.last = nil
	if s.trial, err = s.scale.draft(c); err == nil {
		s.written += s.trial.steps
	}
	return s.trial, err
}

// measure compares what a plan, or its homes, take with what there is.
func (s *assessor) measure(c *candidate, p *plan.Plan) {
	c.peak, c.arenas = p.Peak(), make([]int64, len(p.Arenas))
	for i, a := range p.Arenas {
		c.arenas[i] = a.Bytes
	}
	c.demand = DemandOf(p, s.b.Site.SharedMemory, c.share)
	c.fits = s.lack(c.demand) <= 0
}

// lack is how many bytes the memory that is shortest lacks; below 0, how many are left.
func (s *assessor) lack(n demand) int64 {
	return max(n.lacks(), n.Host-s.b.Site.HostBudget, n.Disk-s.b.Site.Disk.Budget)
}

// simulate forecasts a candidate.
func (s *assessor) simulate(c *candidate) error {
	if s.last != c {
		t, err := s.draft(c.choice)
		if err != nil {
			return err
		}
		t.packed()
	}
	s.last = nil // its instructions are ordered now
	var err error
	if c.forecast, c.captured, err = s.trial.forecast(); err != nil {
		return err
	}
	s.simulated += s.trial.steps
	c.seconds, c.bound = c.forecast.StepSeconds, false
	return nil
}

// predicted is what the plan of a candidate takes, if it takes as much beyond its homes as
// another candidate whose plan was written.
func (s *assessor) predicted(c, near *candidate) demand {
	p := *c.homes
	p.Arenas = append(p.Arenas[:0:0], p.Arenas...)
	for i := range p.Arenas {
		if i < len(near.arenas) {
			p.Arenas[i].Bytes += near.arenas[i] - near.homes.Arenas[i].Bytes
		}
	}
	return DemandOf(&p, s.b.Site.SharedMemory, c.share)
}
