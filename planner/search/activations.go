package search

import "slices"

// mostFetchedEarlier is for how many blocks at most it is tried to fetch offloaded activations earlier.
const mostFetchedEarlier = 32

// fetchAhead is how many runs before its backward a block's activations may be fetched.
var fetchAhead = []int{2, 3, 4, 6}

// fetchEarlier improves on the best where activations wait on the host: block by block it fetches them for more runs
// beforehand, as far as that fits and is faster. Those that come last have most to wait for.
func (s *search) fetchEarlier() error {
	if s.best == nil || !s.whole() {
		return nil
	}
	tried := 0
	for i := len(s.best.choice.OffloadedActivations) - 1; i >= 0; i-- {
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
			c.choice.PrefetchActivations[i], c.choice.PackedByTime = ahead, false
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
