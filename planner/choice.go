package planner

// Choice says what rests where and what is computed twice.
type Choice struct {
	Streamed       []bool // by slab: weights rest on the host and stream through the window
	OffloadedState []bool // by slab: master and moments rest on the host
	// Hosted, by slab: the host's processor updates it, beside the backward, where its
	// state rests: gradients go to the host, and weights that rest on the device come
	// back. It counts for slabs that are offloaded and not on the disk; nil is none.
	UpdatedByCPU []bool
	// Delayed: with clipping, a slab whose state rests on the host is updated in the next
	// iteration, before its first use, instead of in a second walk after the backward.
	DelayedUpdates bool
	// OnDisk, by slab: what rests on the host rests on the disk instead.
	OnDisk []bool
	Level  []Level // by block
	// Spilled, by block: what waits for its backward waits on the host.
	OffloadedActivations []bool
	Prefetch             int // how many streamed slabs may be on the device at once, those on their way home aside
	// Piece is how many elements are updated at once where state moves, a multiple of
	// the alignment; 0 for half a usual slab.
	PieceElements int64
	// Ahead is for how many updates to come optimizer state is fetched beforehand.
	PrefetchStates int
	// Loose: what leaves a device keeps its bytes until the next run there has begun, so
	// that no run waits for a copy out. It takes room; the search takes it where some is
	// left.
	DelayedReuse bool
	// Devices that work; 0 counts as 1. They are data parallel, each with its own
	// micro-batches, unless Split gives each block a device.
	Devices int
	Split   []int // by block: its device; nil for data parallel
	// Pipeline orders the micro-batches over the split so that all devices work.
	Pipeline bool
	// Data parallel devices share what the optimizer keeps: it rests with the owner of
	// a slab alone (ZeRO-1). ShardGradients: so do gradients, which are sent there after
	// every round of micro-batches (ZeRO-2); else each device sums its own, and devices
	// add theirs once. ShardWeights: so do weights, which others fetch (ZeRO-3).
	ShardGradients, ShardWeights bool
	// Vertical: all micro-batches pass a block before the next block; else each
	// micro-batch passes all blocks before the next micro-batch.
	BreadthFirst bool
}

// hosted says whether the host updates a slab.
func (c Choice) updatedByCPU(k int) bool {
	return c.UpdatedByCPU != nil && c.UpdatedByCPU[k] && c.OffloadedState[k] && !c.OnDisk[k]
}

// delayed says whether a trained slab is updated in the next iteration.
func (c Choice) delayed(k int) bool { return c.DelayedUpdates && c.OffloadedState[k] }

// delayedSlabs is how many slabs are updated in the next iteration.
func (c Choice) delayedSlabs() (n int) {
	for k := range c.OffloadedState {
		if c.delayed(k) {
			n++
		}
	}
	return n
}

// hostedSlabs is how many slabs the host updates.
func (c Choice) slabsUpdatedByCPU() (n int) {
	for k := range c.UpdatedByCPU {
		if c.updatedByCPU(k) {
			n++
		}
	}
	return n
}

func (c Choice) devices() int { return max(c.Devices, 1) }

func count(list []bool) (n int) {
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}
