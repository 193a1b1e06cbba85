package search

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"spillway/planner/goal"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// deepSearch finds the best choice. A deep model is searched from coarse to fine: all of the
// search on a small miniature, then near what was best there on larger ones and on itself.
func (s *search) deepSearch() (*candidate, error) {
	r := s.b.FindRepeats()
	s.times = r.Times
	fields, err := s.b.miniatures(r)
	if err != nil {
		return nil, err
	}
	if len(fields) == 0 {
		return s.run()
	}
	coarse := newSearch(fields[0])
	_, err = coarse.run()
	for _, f := range fields[1:] {
		if err == nil {
			next := newSearch(f)
			err, coarse = next.follow(coarse, r), next
		}
	}
	var misfit *goal.FitError
	if err == nil || errors.As(err, &misfit) {
		err = s.follow(coarse, r)
	}
	return s.best, err
}

// follow tries what was best on a coarser scale, and improves on it where that is not much
// coarser.
func (s *search) follow(coarse *search, r layout.Repeats) error {
	s.written, s.simulated = s.written+coarse.written, s.simulated+coarse.simulated
	like := likenessOf(r, coarse.b, coarse.times, s.b, s.times)
	if coarse.best == nil {
		return s.followSmallest(coarse, like)
	}
	for _, c := range coarse.ranked() {
		if s.best != nil && !better(c, s.best) {
			break
		}
		if err := s.settle(s.like(c, coarse, like)); err != nil {
			return err
		}
	}
	if s.best == nil { // the miniature promised too much
		_, err := s.run()
		return err
	}
	s.learn(coarse)
	if much := s.times / coarse.times; much <= deepEnough {
		return s.climb(much/2, 1)
	}
	return nil
}

// followSmallest sees whether what lacked least on a coarser scale lacks something here.
func (s *search) followSmallest(coarse *search, like likeness) (err error) {
	if s.smallest, err = s.estimate(s.like(coarse.smallest, coarse, like)); err != nil {
		return err
	}
	if err := s.measureExactly(s.smallest); err != nil {
		return err
	}
	s.learn(coarse)
	if s.smallest.fits {
		return s.time(s.smallest)
	}
	return s.fitError()
}

// ranked are the best candidates of each parallelism, the fastest first.
func (s *search) ranked() []*candidate {
	of := map[strategy.Parallelism]*candidate{}
	for _, c := range s.made {
		if had := of[c.mix.Parallelism]; c.fits && !c.bound && (had == nil || better(c, had)) {
			of[c.mix.Parallelism] = c
		}
	}
	return slices.SortedFunc(maps.Values(of), func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.seconds, b.seconds), cmp.Compare(slices.Index(strategy.Parallelisms, a.mix.Parallelism), slices.Index(strategy.Parallelisms, b.mix.Parallelism)))
	})
}

// like is the mix of a candidate of a coarser scale, which from now on means the choice that is
// like the candidate's.
func (s *search) like(c *candidate, coarse *search, l likeness) strategy.Mix {
	m, choice := coarse.enlarged(c.mix, s.b), l.choice(c.choice, s.b)
	m.Streamed, m.OffloadedState, m.OnDisk, m.UpdatedByCPU = strategy.Count(choice.Streamed), strategy.Count(choice.OffloadedState), strategy.Count(choice.OnDisk), strategy.Count(choice.UpdatedByCPU)
	if m.UpdatedByCPU > 0 && choice.CPUUpdatesAll() {
		m.UpdatedByCPU = len(choice.UpdatedByCPU)
	}
	s.given[m] = choice
	return m
}

// enlarged is a mix of this search for a deeper model.
func (s *search) enlarged(m strategy.Mix, b *target) strategy.Mix {
	for _, n := range []*int{&m.Streamed, &m.OffloadedState, &m.OnDisk, &m.UpdatedByCPU} {
		*n = enlarge(*n, len(s.b.Slabs.List), len(b.Slabs.List))
	}
	for _, n := range []*int{&m.Recompute, &m.OffloadedActivations} {
		*n = enlarge(*n, len(s.b.Model.Blocks), len(b.Model.Blocks))
	}
	return m
}

// enlarge scales a number of slabs or blocks to a deeper model, rounded.
func enlarge(n, of, more int) int { return (n*more + of/2) / of }

// settle tries a mix, and where it does not fit, smaller ones, until one does.
func (s *search) settle(m strategy.Mix) error {
	tried := []strategy.Mix{m}
	for by := max(len(s.b.Model.Blocks)/strideShare/2, 1); ; by *= 2 {
		for _, m := range tried {
			if _, err := s.step(m); err != nil {
				return err
			}
		}
		if s.best != nil || by > 4*len(s.b.Model.Blocks) {
			return nil
		}
		tried = s.smallerBy(m, by)
	}
}

// smallerBy lists mixes that save more: each number higher, then all of them.
func (s *search) smallerBy(m strategy.Mix, by int) (list []strategy.Mix) {
	all := m
	for i, most := range s.b.Facts().Most() {
		one := m
		for _, n := range []*strategy.Mix{&one, &all} {
			at := n.Numbers()[i]
			*at = min(*at+by, most)
		}
		list = append(list, one)
	}
	return append(list, all)
}

// learn takes over what a search on a coarser scale found out about lines, where nothing better
// is known.
func (s *search) learn(coarse *search) {
	for _, a := range coarse.tried {
		m := coarse.enlarged(a.candidate.mix, s.b)
		c := s.made[m]
		if c == nil || !c.written {
			rough := *a.candidate
			rough.mix, rough.choice, rough.exact, rough.extrapolated = m, s.choice(m), false, true
			c = &rough
		}
		s.tried = append(s.tried, attempt{strategy.Line{Size: 0, Mix: func(int) strategy.Mix { return m }}, c})
	}
}
