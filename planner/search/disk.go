package search

import "spillway/planner/strategy"

// spareDisk tries what lines do not offer where the best so far stores something on the disk: they stream all weights, of
// which the host stores as many as it can. As many weights as fit stay on the device instead, then as many of the others as
// fit on the host, so that least is read from the disk.
func (s *search) spareDisk() error {
	if s.best.mix.OnDisk == 0 {
		return nil
	}
	f, p := s.b.Facts(), s.best.mix.Parallelism
	activations := []int{0}
	if f.Training {
		activations = append(activations, f.Blocks)
	}
	for _, depth := range []int{1, 2} {
		for _, recompute := range f.Recomputing() {
			for _, offloaded := range activations {
				m := strategy.Mix{Parallelism: p, Prefetch: depth, Recompute: recompute, OffloadedActivations: offloaded, OnDisk: f.Slabs}
				if f.Training {
					m.OffloadedState, m.PrefetchStates = f.Slabs, depth-1
				}
				if err := s.leastOnDisk(m, f.Slabs); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// leastOnDisk tries a mix with the fewest slabs that stream, where all of these are on the disk, and of them the fewest
// there for which the host has memory.
func (s *search) leastOnDisk(m strategy.Mix, slabs int) error {
	streams := strategy.Line{Size: slabs, Mix: func(i int) strategy.Mix { m := m; m.Streamed = i; return m }}
	last, err := s.estimate(streams.Mix(slabs))
	if err != nil || !last.fits {
		return err
	}
	if err := s.fit(last); err != nil || !last.fits {
		return err
	}
	first, err := s.firstThatMay(streams, last)
	if err != nil {
		return err
	}
	c, err := s.firstThatFits(streams, first, last)
	if err != nil {
		return err
	}
	m = c.mix
	return s.try(strategy.Line{Size: slabs, Mix: func(i int) strategy.Mix { m := m; m.OnDisk = i; return m }})
}
