package planner

import (
	"fmt"

	"spillway/plan"
	"spillway/spec"
)

// Make finds the fastest plan that fits the site. The model must be traced for
// the micro-batch wanted. When nothing fits the error is a *FitError.
func Make(m *spec.Model, g Goal, site Site) (*plan.Plan, error) {
	b, err := newBlueprint(m, g, site)
	if err != nil {
		return nil, err
	}
	s := &search{b: b, made: map[mix]*candidate{}}
	best, err := s.run()
	if err != nil {
		return nil, err
	}
	p, err := b.emit(best.choice)
	if err != nil {
		return nil, err
	}
	order(p)
	if err := g.Insist.Happened(m, p); err != nil {
		return nil, fmt.Errorf("planning %s: %w", m.Name, err)
	}
	p.Forecast, p.Strategy, p.Reason, p.Rejected = best.forecast, best.choice.title(), s.reason(best), s.rejected(best)
	return p, plan.Verify(p)
}

// search tries families of choices.
type search struct {
	b     *blueprint
	tried []*candidate // the outcome of each family
	made  map[mix]*candidate
	lean  *candidate // the one that takes least of the device
	best  *candidate // the fastest so far
	steps int        // of the plan emitted last: the size of plans of this model
}

// candidate is a choice and what its plan takes. The plan itself is not kept: there
// may be hundreds, and it is quickly made again.
type candidate struct {
	mix    mix
	choice Choice
	fits   bool
	needed
	share   float64 // of a device it may fill
	peak    map[plan.Tier]int64
	seconds float64 // of an iteration
	// bound: seconds is only what computing alone takes, which is already too long.
	bound    bool
	forecast *plan.Forecast
}

// run searches all families, then climbs from the best.
func (s *search) run() (*candidate, error) {
	for _, w := range s.ways() {
		for _, f := range s.families(w) {
			if err := s.try(f); err != nil {
				return nil, err
			}
		}
	}
	if s.best == nil {
		return nil, s.fitError()
	}
	return s.best, s.climb()
}

// try finds the first choice of a family that fits, by bisection. A family without
// one leaves its leanest as rejected.
func (s *search) try(f family) error {
	lo, hi := 0, f.size // the answer, if any, is in [lo, hi]
	c, err := s.look(f.mix(hi))
	if err != nil {
		return err
	}
	s.leaner(c)
	for c.fits && lo < hi {
		mid := (lo + hi) / 2
		half, err := s.look(f.mix(mid))
		if err != nil {
			return err
		}
		if half.fits {
			hi, c = mid, half
		} else {
			lo = mid + 1
		}
	}
	s.tried = append(s.tried, c)
	return s.time(c)
}

// leaner remembers the candidate that lacks least of a device.
func (s *search) leaner(c *candidate) {
	if s.lean == nil || c.lacks() < s.lean.lacks() {
		s.lean = c
	}
}

// look emits the plan of a mix to see whether it fits.
func (s *search) look(m mix) (*candidate, error) {
	if c, ok := s.made[m]; ok {
		return c, nil
	}
	c := &candidate{mix: m, choice: s.choice(m)}
	p, err := s.b.emit(c.choice)
	if err != nil {
		return nil, err
	}
	s.measure(c, p)
	s.made[m], s.steps = c, len(p.Steps)
	return c, nil
}

func (s *search) measure(c *candidate, p *plan.Plan) {
	c.peak = p.Peak()
	c.share = s.share(c.choice)
	c.needed = needs(p, s.b.site.SharedPools, c.share)
	c.fits = c.device <= c.budget && c.host <= s.b.site.HostBudget && c.disk <= s.b.site.Disk.Budget
	c.seconds, c.bound = s.computing(p), true
}

// computing is how long the busiest device computes: no forecast can be shorter.
func (s *search) computing(p *plan.Plan) (most float64) {
	per := make([]float64, len(p.Programs))
	for i, g := range p.Programs {
		per[i] = s.b.seconds(g.Graph)
	}
	busy := make([]float64, len(p.Devices))
	for _, st := range p.Steps {
		if st.Verb == plan.Run {
			busy[st.Device] += per[st.Program]
			most = max(most, busy[st.Device])
		}
	}
	return most
}

// time forecasts a candidate that fits, unless computing alone already takes longer
// than the best so far, and remembers the best.
func (s *search) time(c *candidate) error {
	if !c.fits || !c.bound || !s.beats(c) {
		return nil
	}
	p, err := s.b.emit(c.choice)
	if err != nil {
		return err
	}
	order(p)
	if c.forecast, err = forecast(p, s.b.site); err != nil {
		return err
	}
	c.seconds, c.bound = c.forecast.StepSeconds, false
	if s.beats(c) {
		s.best = c
	}
	return nil
}

// worth is how much shorter an iteration must be to be worth a different plan: a
// forecast is not exact to the last digit.
const worth = 0.999

// better is faster; among those as good as equal, the simpler, then the one with less
// memory.
func better(a, b *candidate) bool {
	switch {
	case a.seconds < worth*b.seconds:
		return true
	case b.seconds < worth*a.seconds:
		return false
	case a.mix.effort() != b.mix.effort():
		return a.mix.effort() < b.mix.effort()
	case a.seconds != b.seconds:
		return a.seconds < b.seconds
	}
	return a.device < b.device
}
