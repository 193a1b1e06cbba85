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
			err, coarse = descent{next, coarse, r}.follow(), next
		}
	}
	var misfit *goal.FitError
	if err == nil || errors.As(err, &misfit) {
		err = descent{s, coarse, r}.follow()
	}
	return s.best, err
}

// descent is a search that goes on from one on a coarser scale.
type descent struct {
	*search
	coarse  *search
	repeats layout.Repeats
}

// follow tries what was best on the coarser scale, and improves on it where that is not much
// coarser.
func (s descent) follow() error {
	s.written, s.simulated = s.written+s.coarse.written, s.simulated+s.coarse.simulated
	if s.coarse.best == nil {
		return s.followSmallest()
	}
	for _, c := range s.coarse.ranked() {
		if s.best != nil && !better(c, s.best) {
			break
		}
		if err := s.settle(s.like(c)); err != nil {
			return err
		}
	}
	if s.best == nil { // the miniature promised too much
		_, err := s.run()
		return err
	}
	s.learn()
	if much := s.times / s.coarse.times; much <= deepEnough {
		return s.climb(much/2, 1)
	}
	return nil
}

// followSmallest sees whether what lacked least on the coarser scale lacks something here.
func (s descent) followSmallest() (err error) {
	if s.smallest, err = s.estimate(s.like(s.coarse.smallest)); err != nil {
		return err
	}
	if err := s.measureExactly(s.smallest); err != nil {
		return err
	}
	s.learn()
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

// like is the mix of a candidate of the coarser scale, which from now on means the choice that
// is like the candidate's.
func (s descent) like(c *candidate) strategy.Mix {
	likeness := likenessOf(s.repeats, s.coarse.b, s.coarse.times, s.b, s.times)
	m, choice := s.enlarged(c.mix), likeness.choice(c.choice, s.b)
	m.Streamed, m.OffloadedState, m.OnDisk, m.UpdatedByCPU = strategy.Count(choice.Streamed), strategy.Count(choice.OffloadedState), strategy.Count(choice.OnDisk), strategy.Count(choice.UpdatedByCPU)
	if m.UpdatedByCPU > 0 && choice.CPUUpdatesAll() {
		m.UpdatedByCPU = len(choice.UpdatedByCPU)
	}
	s.given[m] = choice
	return m
}

// enlarged is a mix of the coarser scale with its numbers scaled to this one, rounded.
func (s descent) enlarged(m strategy.Mix) strategy.Mix {
	small, large := s.coarse.b, s.b
	for i, n := range m.Numbers() {
		of, more := len(small.Slabs.List), len(large.Slabs.List)
		if i == strategy.Recompute || i == strategy.OffloadedActivations {
			of, more = len(small.Model.Blocks), len(large.Model.Blocks)
		}
		*n = (*n*more + of/2) / of
	}
	return m
}

// settle tries a mix, and where it does not fit, mixes that save more, until one does: each
// number higher, then all of them.
func (s descent) settle(m strategy.Mix) error {
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
		all := m
		tried = nil
		for i, most := range s.b.Facts().Most() {
			one := m
			for _, n := range []*strategy.Mix{&one, &all} {
				at := n.Numbers()[i]
				*at = min(*at+by, most)
			}
			tried = append(tried, one)
		}
		tried = append(tried, all)
	}
}

// learn takes over what was found out about lines on the coarser scale, where nothing better is
// known.
func (s descent) learn() {
	for _, a := range s.coarse.tried {
		m := s.enlarged(a.candidate.mix)
		c := s.made[m]
		if c == nil || !c.written {
			rough := *a.candidate
			rough.mix, rough.choice, rough.exact, rough.extrapolated = m, s.choice(m), false, true
			c = &rough
		}
		s.tried = append(s.tried, attempt{strategy.Line{Size: 0, Mix: func(int) strategy.Mix { return m }}, c})
	}
}
