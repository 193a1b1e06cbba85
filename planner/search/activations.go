package search

import (
	"slices"

	"spillway/planner/strategy"
)

// overlapActivations improves on the best where activations wait on the host: with memory that is left their copies
// overlap with more runs.
func (s *search) overlapActivations() error {
	if s.best == nil || !s.whole() || strategy.Count(s.best.choice.OffloadedActivations) == 0 {
		return nil
	}
	s.eager, s.made = true, map[strategy.Mix]*candidate{}
	blocks := len(s.b.Model.Blocks)
	for _, m := range s.fewerOffloaded() {
		c, err := s.estimate(m)
		if err == nil && s.beats(c) {
			err = s.fit(c)
		}
		if err == nil {
			err = s.time(c)
		}
		if err != nil {
			return err
		}
	}
	if err := s.climb(blocks/4, max(blocks/strideShare, 1)); err != nil {
		return err
	}
	return s.fetchEarlier()
}

// fewerOffloaded are the best mix, and those in which the activations of fewer blocks, or of one more, wait on the host, all others are
// recomputed, and optimizer state waits there too, which takes less of the link.
func (s *search) fewerOffloaded() []strategy.Mix {
	list, most := []strategy.Mix{s.best.mix}, s.b.Facts().Most()
	for n := 1; n <= min(s.best.mix.OffloadedActivations+1, most[strategy.OffloadedActivations], mostFetchedEarlier); n++ {
		m := s.best.mix
		m.OffloadedActivations, m.Recompute, m.OffloadedState = n, most[strategy.Recompute], most[strategy.OffloadedState]
		for _, byCPU := range []int{0, most[strategy.UpdatedByCPU] / 2, most[strategy.UpdatedByCPU]} {
			m.UpdatedByCPU = byCPU
			list = append(list, m)
		}
	}
	return list
}

// mostFetchedEarlier is for how many blocks at most it is tried to fetch offloaded activations earlier.
const mostFetchedEarlier = 32

// allHidden is the share of a step that its busiest resource works for, above which earlier copies can hide no wait that is worth the
// search: it forecasts some hundred plans.
const allHidden = 0.995

// fetchAhead is how many runs before its backward a block's activations may be fetched.
var fetchAhead = []int{2, 3, 4, 6}

// fetchEarlier fetches activations of the best for more runs beforehand, block by block, as far as that fits and is faster.
func (s *search) fetchEarlier() error {
	tried := 0
	for i := len(s.best.choice.OffloadedActivations) - 1; i >= 0; i-- {
		if s.best.forecast.RooflineShare > allHidden {
			return nil
		}
		if !s.best.choice.OffloadedActivations[i] || s.written > searchBudget {
			continue
		}
		if tried++; tried > mostFetchedEarlier {
			return nil
		}
		for _, ahead := range fetchAhead {
			c := &candidate{mix: s.best.mix, choice: s.best.choice, homes: s.best.homes, share: s.best.share, bound: true}
			if c.choice.PrefetchActivations = slices.Clone(c.choice.PrefetchActivations); c.choice.PrefetchActivations == nil {
				c.choice.PrefetchActivations = make([]int, len(c.choice.OffloadedActivations))
			}
			c.choice.PrefetchActivations[i], c.choice.PackedBy = ahead, 0
			if err := s.fit(c); err != nil {
				return err
			}
			if !c.fits {
				continue
			}
			if err := s.simulate(c); err != nil {
				return err
			}
			if c.seconds < s.best.seconds {
				s.best = c
			}
		}
	}
	return nil
}
