package planner

import "spillway/planner/strategy"

// facts decide which strategies there are.
func (b *blueprint) facts() strategy.Facts {
	return strategy.Facts{Blocks: len(b.model.Blocks), Slabs: len(b.slabs.list), Levels: len(b.levels), Devices: max(b.site.Devices, 1), MicroBatches: b.goal.MicroBatches,
		Training: b.training(), Disk: b.site.Disk.Budget > 0, CPUUpdates: b.cpuUpdatesTimed(), DelayedUpdates: b.delayable(),
		WholeParams: b.training() && b.goal.Optimizer.Rule.WholeParam()}
}

// linesOf lists the lines to search for devices that share the work in one way.
func (s *search) linesOf(p strategy.Parallelism) (list []strategy.Line) {
	f, st := s.b.facts(), strategy.Of(p)
	if p == "" && f.Devices > 1 {
		return strategy.Standard.Lines(f) // for comparison: the others help
	}
	for _, line := range strategy.Candidates(f) {
		if st.StaysOnDevice && s.b.goal.Constraints.Parallelism == "" && !staysOnDevice(line) {
			continue
		}
		list = append(list, strategy.Line{Size: line.Size, Mix: func(i int) strategy.Mix { m := line.Mix(i); m.Parallelism = p; return m }})
	}
	return list
}

// staysOnDevice says whether nothing leaves the device along a line.
func staysOnDevice(line strategy.Line) bool {
	m := line.Mix(line.Size)
	return m.Streamed+m.OffloadedState+m.OffloadedActivations+m.OnDisk == 0
}

// choice of a mix.
func (s *search) choice(m strategy.Mix) strategy.Choice {
	if c, ok := s.given[m]; ok {
		return c
	}
	b := s.b
	c := strategy.Choice{Streamed: b.slabs.streaming(m.Streamed), OffloadedState: spread(m.OffloadedState, len(b.slabs.list)), OnDisk: spread(m.OnDisk, len(b.slabs.list)),
		UpdatedByCPU: spread(m.UpdatedByCPU, len(b.slabs.list)), Level: make([]strategy.Level, len(b.model.Blocks)), OffloadedActivations: make([]bool, len(b.model.Blocks)),
		DelayedUpdates: m.DelayedUpdates, Prefetch: m.Prefetch, PrefetchStates: m.PrefetchStates, BreadthFirst: m.Streamed+m.OffloadedState > 0}
	for k := range m.FirstOnDevice {
		c.UpdatedByCPU[k] = false
	}
	for i := range c.Level {
		c.OffloadedActivations[i] = i < m.OffloadedActivations
		c.Level[i] = b.levelAfter(m.Recompute, i)
	}
	if st := strategy.Of(m.Parallelism); st.Spread != nil {
		st.Spread(&c, b.facts(), b.split)
	}
	return b.allowed(s.constrained(c))
}

// spread marks n of the places, as evenly as can be.
func spread(n, of int) []bool {
	marks := make([]bool, of)
	for i := range marks {
		marks[i] = (i+1)*n/of > i*n/of
	}
	return marks
}
