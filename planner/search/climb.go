package search

import (
	"cmp"
	"slices"
	"spillway/planner/strategy"
)

// strideShare is into how many strides the blocks are divided at the finest: changing fewer of
// them changes less than a forecast is exact to.
const strideShare = 32

// patience is how many strides in a row may bring nothing.
const patience = 2

// persistBudget bounds how many instructions of plans are written in a thorough search.
const persistBudget = searchBudget / 10

// persists says whether the search is thorough: it tries more than what mostly helps, and goes on
// to smaller strides where a larger one lacked nothing but memory. That is so where plans are
// quickly written, and of the model itself.
func (s *search) persists() bool { return s.whole() && s.written < persistBudget }

// climbStarts is how many lines are climbed from at most: the best plan near one of them need not
// be near the best line.
const climbStarts = 5

// climbAll climbs from the best of what was tried, and in a thorough search from others.
func (s *search) climbAll() error {
	blocks, others := len(s.b.Model.Blocks), s.others()
	if err := s.climb(blocks/2, max(blocks/strideShare, 1)); err != nil {
		return err
	}
	for _, c := range others {
		if !s.persists() {
			break
		}
		top := s.best
		s.best = c
		if err := s.climb(blocks/4, max(blocks/strideShare, 1)); err != nil {
			return err
		}
		found := s.best
		if s.best = top; s.beats(found) {
			s.best = found
		}
	}
	return nil
}

// others are what was tried but for the best: the fastest, the fastest of two more kinds, then
// whatever is fastest. Of those that take equally long one will do.
func (s *search) others() (list []*candidate) {
	tried := slices.Clone(s.tried)
	slices.SortStableFunc(tried, func(a, b attempt) int { return cmp.Compare(a.seconds, b.seconds) })
	kinds, times := map[strategy.Kinds]bool{s.best.mix.Kinds(): true}, map[float64]bool{s.best.seconds: true}
	take := func(most int, also func(*candidate) bool) {
		for _, a := range tried {
			if a.fits && !a.bound && len(list) < most && !times[a.seconds] && also(a.candidate) {
				kinds[a.candidate.mix.Kinds()], times[a.seconds] = true, true
				list = append(list, a.candidate)
			}
		}
	}
	take(1, func(*candidate) bool { return true })
	take(3, func(c *candidate) bool { return !kinds[c.mix.Kinds()] })
	take(climbStarts-1, func(*candidate) bool { return true })
	return list
}

// climb improves on the best: it changes its mix by a stride, which is halved when that no longer
// helps, down to the least, as long as it is faster and fits.
func (s *search) climb(stride, least int) error {
	for idle := 0; stride >= least && idle < patience; stride /= 2 {
		idle++
		for again := true; again; {
			from := s.best
			for _, m := range s.neighboursOf(from.mix, stride) {
				if s.written > searchBudget {
					return nil
				}
				lacks, err := s.step(m)
				if err != nil {
					return err
				}
				if lacks && s.persists() {
					idle = 0
				}
			}
			if again = s.best.seconds < worthwhile*from.seconds; again {
				idle = 0
			}
		}
	}
	return nil
}

// step tries one mix, if it may fit and be better than the best, and says whether memory is all
// it lacks.
func (s *search) step(m strategy.Mix) (lacks bool, err error) {
	c, err := s.estimate(m)
	if err != nil || !s.beats(c) {
		return false, err
	}
	if !c.fits || s.surelyLacks(c) {
		return true, nil
	}
	if err := s.fit(c); err != nil {
		return false, err
	}
	return !c.fits, s.time(c)
}

// surelyShare is by how much, as a share of the device, a candidate must be predicted to exceed
// it to be left alone.
const surelyShare = 0.005

// surelyLacks says whether a candidate does not fit, judging by the best, which does: it takes as
// much beyond its estimate, unless it prefetches less.
func (s *search) surelyLacks(c *candidate) bool {
	if s.best == nil || !s.best.exact || c.mix.Parallelism != s.best.mix.Parallelism || c.mix.Prefetch < s.best.mix.Prefetch || c.mix.PrefetchStates < s.best.mix.PrefetchStates {
		return false
	}
	n := s.predicted(c, s.best)
	return s.lack(n) > int64(surelyShare*float64(n.budget))
}
