package strategy

import "cmp"

// Facts are what of a model, a goal and a machine decides which strategies there are.
type Facts struct {
	Blocks, Slabs int
	// Levels is how many there are of what blocks save for their backward.
	Levels       int
	Devices      int
	MicroBatches int
	Training     bool
	Disk         bool // something may be stored there
	// CPUUpdates: it is known how fast the CPU runs the optimizer, so that it may.
	CPUUpdates bool
	// DelayedUpdates: updates may be left to the next iteration.
	DelayedUpdates bool
	// WholeParams: the optimizer updates whole params, which the CPU cannot.
	WholeParams bool
	// Alone: a strategy is compared by itself. Nobody improves on its lines then, so they
	// try more.
	Alone bool
}

// AllRecomputed is how many steps it takes to recompute all that can be: each takes one
// block to its next level.
func (f Facts) AllRecomputed() int { return (f.Levels - 1) * f.Blocks }

// Recomputing lists amounts of recomputing, level by level, from nothing to everything.
func (f Facts) Recomputing() (steps []int) {
	if !f.Training {
		return []int{0}
	}
	for n := 0; n <= f.AllRecomputed(); n += f.Blocks {
		steps = append(steps, n)
	}
	return steps
}

// Mix is a choice in numbers: how many of the slabs and blocks are treated in which way.
// Slabs are spread evenly, among those that stream the large ones come first; blocks are
// taken from the first on, whose values wait longest for their backward.
type Mix struct {
	Parallelism    Parallelism
	Streamed       int // slabs whose weights are stored on the host and stream
	OffloadedState int // slabs whose optimizer state is stored on the host
	// Recompute counts steps, each of which takes a block to its next level: all to the
	// second level, then all to the third, and so on.
	Recompute            int
	OffloadedActivations int // blocks whose saved values wait on the host
	OnDisk               int // slabs that are stored on the disk instead of the host
	Prefetch             int // depth, see Choice
	PrefetchStates       int // see Choice
	UpdatedByCPU         int // slabs that the CPU updates, as far as their state is stored there
	FirstOnDevice        int // of these, the first slabs are updated on the device: their gradients come last
	DelayedUpdates       bool
}

// Simpler is below 0 where a mix does less beyond running a model where it is than another, above 0 where it does more:
// fewer kinds of things, or of as many kinds fewer things.
func (m Mix) Simpler(than Mix) int {
	kinds, things := m.effort()
	otherKinds, others := than.effort()
	return cmp.Or(cmp.Compare(kinds, otherKinds), cmp.Compare(things, others))
}

// effort counts what a mix does beyond running a model where it is.
func (m Mix) effort() (kinds, things int) {
	for _, n := range m.Numbers() {
		things += *n
		if *n > 0 {
			kinds++
		}
	}
	for _, does := range []bool{m.DelayedUpdates, m.Parallelism != ""} {
		if does {
			kinds, things = kinds+1, things+1
		}
	}
	return kinds, things
}

// Kinds are the sorts of saving that a mix makes use of.
type Kinds struct{ Streamed, OffloadedState, OffloadedActivations, OnDisk, UpdatedByCPU bool }

// Kinds of saving that a mix makes use of.
func (m Mix) Kinds() Kinds {
	return Kinds{m.Streamed > 0, m.OffloadedState > 0, m.OffloadedActivations > 0, m.OnDisk > 0, m.UpdatedByCPU > 0}
}

// The numbers of a mix, as indexes of Numbers and Most.
const (
	Streamed = iota
	OffloadedState
	Recompute
	OffloadedActivations
	OnDisk
	UpdatedByCPU
)

// Numbers are those of a mix that say how many.
func (m *Mix) Numbers() [6]*int {
	return [6]*int{&m.Streamed, &m.OffloadedState, &m.Recompute, &m.OffloadedActivations, &m.OnDisk, &m.UpdatedByCPU}
}

// Most is the most that each of a mix's numbers can be.
func (f Facts) Most() [6]int {
	most := [6]int{f.Slabs, f.Slabs, f.AllRecomputed(), f.Blocks, f.Slabs, f.Slabs}
	if !f.Training {
		most[OffloadedState], most[Recompute], most[OffloadedActivations] = 0, 0, 0
	}
	if !f.Disk {
		most[OnDisk] = 0
	}
	if !f.CPUUpdates {
		most[UpdatedByCPU] = 0
	}
	return most
}

// Line is mixes 0 to Size, from most memory to least: the first that fits is the one to
// have.
type Line struct {
	Size int
	Mix  func(i int) Mix
}
