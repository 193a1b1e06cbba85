package search

import (
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// chooser turns mixes into choices for a model.
type chooser struct {
	b     *target
	given map[strategy.Mix]strategy.Choice // where a mix does not say it all
}

// linesOf lists the lines to search for devices that share the work in one way.
func (s *chooser) linesOf(p strategy.Parallelism) (list []strategy.Line) {
	f, st := s.b.Facts(), strategy.Of(p)
	for _, line := range strategy.Candidates(f) {
		if m := line.Mix(line.Size); st.StaysOnDevice && s.b.Goal.Constraints.Parallelism == "" && m.Streamed+m.OffloadedState+m.OffloadedActivations+m.OnDisk > 0 {
			continue // something leaves the device along the line
		}
		list = append(list, strategy.Line{Size: line.Size, Mix: func(i int) strategy.Mix { m := line.Mix(i); m.Parallelism = p; return m }})
	}
	return list
}

// choice of a mix.
func (s *chooser) choice(m strategy.Mix) strategy.Choice {
	if c, ok := s.given[m]; ok {
		return c
	}
	b := s.b
	c := strategy.Choice{Streamed: b.Slabs.Streaming(m.Streamed), OffloadedState: layout.Spread(m.OffloadedState, len(b.Slabs.List)), OnDisk: layout.Spread(m.OnDisk, len(b.Slabs.List)),
		UpdatedByCPU: layout.Spread(m.UpdatedByCPU, len(b.Slabs.List)), Level: make([]strategy.Level, len(b.Model.Blocks)), OffloadedActivations: make([]bool, len(b.Model.Blocks)),
		DelayedUpdates: m.DelayedUpdates, Prefetch: m.Prefetch, PrefetchStates: m.PrefetchStates, BreadthFirst: m.Streamed+m.OffloadedState > 0}
	for k := range m.FirstOnDevice {
		c.UpdatedByCPU[k] = false
	}
	for i := range c.Level {
		c.OffloadedActivations[i] = i < m.OffloadedActivations
		c.Level[i] = b.LevelAfter(m.Recompute, i)
	}
	if st := strategy.Of(m.Parallelism); st.Spread != nil {
		st.Spread(&c, b.Facts(), b.split)
	}
	return b.Allowed(s.constrained(c))
}
