package search

import "spillway/units"

const (
	// leastPrefetched is the size of a micro-batch from which on it is tried to bring it during the iteration
	// before: below, a copy to the device takes some microseconds.
	leastPrefetched = int64(units.MiB)
	// worthPrefetching is the share of the time that an iteration may take then to be worth the memory.
	worthPrefetching = 0.998
)

// prefetchBatch has the batch of the next iteration come while one runs, where the best has memory left for it and is
// faster then. On the CPU such copies take the cores that compute.
func (s *search) prefetchBatch() error {
	b := s.b
	if !b.Training() || b.Goal.Optimizer.Held || b.Goal.Bounds.SingleBatch || !b.Site.HostPinned || b.Batch.Bytes < leastPrefetched {
		return nil
	}
	c := &candidate{mix: s.best.mix, choice: s.best.choice, homes: s.best.homes, share: s.best.share, bound: true}
	c.choice.NextBatch, c.choice.PackedBy = true, 0
	if err := s.fit(c); err != nil || !c.fits {
		return err
	}
	if err := s.simulate(c); err != nil {
		return err
	}
	if c.seconds < worthPrefetching*s.best.seconds {
		s.best = c
	}
	return nil
}
