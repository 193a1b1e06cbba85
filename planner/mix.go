package planner

// family is a line of choices from most memory to least: the first that fits is
// the one to have.
type family struct {
	size int // mixes 0 .. size
	mix  func(i int) mix
}

// mix is a choice in numbers: how many of the slabs and blocks are treated which
// way. Slabs are spread evenly, among those that stream the large ones come first; blocks
// are taken from the first on, whose values wait longest.
type mix struct {
	way                  way
	streamed             int // slabs whose weights stream
	offloaded            int // slabs whose optimizer state rests on the host
	recompute            int // steps, each of which takes a block to its next level: all to the second, then all to the third, ...
	offloadedActivations int // blocks whose values wait on the host
	onDisk               int // slabs whose homes are on the disk instead of the host
	prefetch             int
	prefetchStates       int // updates whose state is fetched beforehand
	updatedByCPU         int // slabs that the host updates, as far as their state rests there
	firstOnDevice        int // but for the first slabs, whose gradients come last
	delayed              bool
}

// effort is how much a mix does beyond running a model where it is.
func (m mix) effort() int {
	n := m.streamed + m.offloaded + m.recompute + m.offloadedActivations + m.onDisk + m.updatedByCPU
	if m.delayed {
		n++
	}
	return n
}

// families lists the lines to search for one way to share the work. Each leaves one
// thing free and fixes the others.
func (s *search) families(w way) []family {
	blocks, slabs := len(s.b.model.Blocks), len(s.b.slabs.list)
	all := s.b.recomputes() // everything is
	list := []family{{0, func(int) mix { return mix{way: w} }}}
	if w == alone && s.devices() > 1 {
		return list // for comparison: the others help
	}
	if !s.b.training() {
		for _, window := range []int{3, 2, 1} {
			list = append(list, family{slabs, func(i int) mix { return mix{way: w, streamed: i, prefetch: window} }})
		}
		if s.b.site.Disk.Budget > 0 {
			list = append(list, family{slabs, func(i int) mix { return mix{way: w, streamed: slabs, onDisk: i, prefetch: 2} }})
		}
		return list
	}
	var kept []int // from all of it to nothing, level by level
	for r := 0; r <= all; r += blocks {
		kept = append(kept, r)
	}
	list = append(list, family{all, func(i int) mix { return mix{way: w, recompute: i} }})
	if w == shardedState && s.b.goal.Constraints.Parallelism == "" {
		return list // where something leaves the device, a block has all its micro-batches at once, as with sharded gradients
	}
	for _, r := range kept {
		list = append(list, family{slabs, func(i int) mix { return mix{way: w, offloaded: i, recompute: r, prefetchStates: 1} }})
	}
	for _, window := range []int{2, 1} {
		for _, r := range kept {
			list = append(list, family{slabs, func(i int) mix {
				return mix{way: w, streamed: i, offloaded: slabs, recompute: r, prefetch: window, prefetchStates: window - 1}
			}})
		}
	}
	list = append(list, family{slabs, func(i int) mix {
		return mix{way: w, streamed: i, offloaded: slabs, recompute: all, offloadedActivations: blocks, prefetch: 1}
	}})
	for _, r := range []int{blocks, all} {
		list = append(list,
			family{blocks, func(i int) mix {
				return mix{way: w, offloaded: slabs, recompute: r, offloadedActivations: i, prefetchStates: 1}
			}},
			family{slabs, func(i int) mix {
				return mix{way: w, streamed: i, offloaded: slabs, recompute: r, offloadedActivations: blocks, prefetch: 2, prefetchStates: 1}
			}})
	}
	list = s.b.withDelayed(s.b.withCPUUpdates(list))
	if s.b.site.Disk.Budget > 0 {
		list = append(list,
			family{slabs, func(i int) mix {
				return mix{way: w, streamed: slabs, offloaded: slabs, recompute: all, onDisk: i, prefetch: 2, prefetchStates: 1}
			}},
			family{slabs, func(i int) mix {
				return mix{way: w, streamed: slabs, offloaded: slabs, recompute: all, offloadedActivations: blocks, onDisk: i, prefetch: 1}
			}})
	}
	return list
}

// withHosted adds the lines in which state leaves the device once more, with the host
// updating what it has the state of.
func (b *blueprint) withCPUUpdates(list []family) []family {
	if !b.cpuUpdatesTimed() {
		return list
	}
	for _, f := range list {
		if f.mix(f.size).offloaded > 0 {
			list = append(list, family{f.size, func(i int) mix { m := f.mix(i); m.updatedByCPU, m.prefetchStates = len(b.slabs.list), 0; return m }})
		}
	}
	return list
}

// choice of a mix.
func (s *search) choice(m mix) Choice {
	if c, ok := s.given[m]; ok {
		return c
	}
	b := s.b
	c := Choice{Streamed: b.slabs.streaming(m.streamed), OffloadedState: spread(m.offloaded, len(b.slabs.list)), OnDisk: spread(m.onDisk, len(b.slabs.list)),
		UpdatedByCPU: spread(m.updatedByCPU, len(b.slabs.list)), Level: make([]Level, len(b.model.Blocks)), OffloadedActivations: make([]bool, len(b.model.Blocks)),
		DelayedUpdates: m.delayed, Prefetch: m.prefetch, PrefetchStates: m.prefetchStates, BreadthFirst: m.streamed+m.offloaded > 0}
	for k := range m.firstOnDevice {
		c.UpdatedByCPU[k] = false
	}
	for i := range c.Level {
		c.OffloadedActivations[i] = i < m.offloadedActivations
		c.Level[i] = b.levelAfter(m.recompute, i)
	}
	return b.allowed(s.constrained(s.spreadOver(c, m.way)))
}

// spread marks n of the places, as evenly as can be.
func spread(n, of int) []bool {
	marks := make([]bool, of)
	for i := range marks {
		marks[i] = (i+1)*n/of > i*n/of
	}
	return marks
}
