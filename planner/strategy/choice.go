package strategy

import (
	"fmt"
	"slices"
)

// Choice is all that a plan decides. The zero value of everything is the standard plan.
type Choice struct {
	Streamed       []bool `json:"streamed,omitempty"`        // by slab: weights are stored on the host and stream to the device
	OffloadedState []bool `json:"offloaded_state,omitempty"` // by slab: master weights and optimizer state are stored on the host
	// UpdatedByCPU, by slab: the CPU runs the optimizer on it during the backward, where its
	// state is stored: gradients go to the host, and weights that are stored on the device
	// come back. It counts for slabs whose state is offloaded and not on the disk; nil is
	// none.
	UpdatedByCPU []bool `json:"updated_by_cpu,omitempty"`
	// DelayedUpdates: with clipping, a slab whose state is offloaded is updated in the next
	// iteration, before its first use, instead of in a second walk after the backward.
	DelayedUpdates bool `json:"delayed_updates,omitempty"`
	// OnDisk, by slab: what would be stored on the host is stored on the disk instead.
	OnDisk []bool  `json:"on_disk,omitempty"`
	Level  []Level `json:"level,omitempty"` // by block: what it saves for its backward
	// OffloadedActivations, by block: what waits for its backward waits on the host.
	OffloadedActivations []bool `json:"offloaded_activations,omitempty"`
	// Prefetch is the prefetch depth: how many streamed slabs may be on a device at once,
	// not counting those on their way home.
	Prefetch int `json:"prefetch,omitempty"`
	// PieceElements is how many elements of a slab are updated at once where state moves, a
	// multiple of the alignment; 0 is half a usual slab.
	PieceElements int64 `json:"piece_elements,omitempty"`
	// PrefetchStates is for how many updates to come optimizer state is fetched beforehand.
	PrefetchStates int `json:"prefetch_states,omitempty"`
	// DelayedReuse: what leaves a device keeps its bytes until the next run there has begun,
	// so that no run waits for a copy out. It takes memory; the search takes it where some
	// is left.
	DelayedReuse bool `json:"delayed_reuse,omitempty"`
	// HeldRuns is until how many runs later activations that leave a device keep their bytes with DelayedReuse;
	// 0 counts as 1.
	HeldRuns int `json:"held_runs,omitempty"`
	// PrefetchActivations, by block, is how many runs before its backward the block's offloaded activations are
	// fetched; nil and less than 1 count as 1.
	PrefetchActivations []int `json:"prefetch_activations,omitempty"`
	// PackedBy is in which order buffers are given their places: 0 is the largest first, more counts for how long
	// they live.
	PackedBy int `json:"packed_by,omitempty"`
	// CPURows, by block, is up to how many rows of a step of generation the CPU computes the block
	// itself, from weights and keys and values in host memory; in larger steps the device does, to
	// which they stream. It counts for blocks whose weights are stored on the host; nil is none.
	CPURows []int64 `json:"cpu_rows,omitempty"`
	// HostCaches: keys and values of all blocks are stored in host memory, and go to the device and back with
	// the block that reads them, where they do not fit there.
	HostCaches bool `json:"host_caches,omitempty"`
	// NextBatch: the batch of the next iteration comes to the device while one runs, where it has memory of its
	// own. Of several micro-batches that is the first of a device; the others come while it computes.
	NextBatch bool `json:"next_batch,omitempty"`
	// Devices that work; 0 counts as 1. They are data parallel, each with its own
	// micro-batches, unless Split gives each block a device.
	Devices int   `json:"devices,omitempty"`
	Split   []int `json:"split,omitempty"` // by block: its device; nil for data parallel
	// Pipeline orders the micro-batches over the split so that all devices work.
	Pipeline bool `json:"pipeline,omitempty"`
	// Data parallel devices share optimizer state: that of a slab is stored with the slab's
	// owner alone (ZeRO-1). ShardGradients: so are gradients, which are sent there after
	// every round of micro-batches (ZeRO-2); else each device sums its own, and devices add
	// theirs once. ShardWeights: so are weights, which others fetch (ZeRO-3).
	ShardGradients bool `json:"shard_gradients,omitempty"`
	ShardWeights   bool `json:"shard_weights,omitempty"`
	// BreadthFirst: all micro-batches pass a block before the next block; else each
	// micro-batch passes all blocks before the next micro-batch.
	BreadthFirst bool `json:"breadth_first,omitempty"`
	// Rounds is in how many parts the micro-batches pass the blocks breadth first, one part after the other; 0 counts
	// as 1. Fewer activations wait at once, weights stream once more a round, and gradients of slabs whose state is
	// stored off the device wait there between rounds.
	Rounds int `json:"rounds,omitempty"`
}

// Level says how much of a block's forward is saved for its backward.
type Level int

// The levels, from most memory and least time to least memory and most time.
const (
	SaveAll       Level = iota // every value the gradient reads, but for dequantized weights
	SaveMatmuls                // outputs of matmuls and attention; the cheap rest is recomputed
	SaveAttention              // outputs of attention, which take much time for their size
	SaveNone                   // only the block's input; its forward runs again
)

// Parallelism is how several devices share the work; "" is one device, or where something
// is asked for, leaves it open. Each has the name of its strategy.
type Parallelism string

// The parallelisms. The first three are data parallel.
const (
	ZeRO1         Parallelism = "zero-1"
	ZeRO2         Parallelism = "zero-2"
	ZeRO3         Parallelism = "zero-3"
	ModelParallel Parallelism = "model-parallel"
	Pipeline      Parallelism = "pipeline"
)

// Parallelisms lists them.
var Parallelisms = []Parallelism{ZeRO1, ZeRO2, ZeRO3, ModelParallel, Pipeline}

// Parallelism is how the devices of a choice share the work.
func (c Choice) Parallelism() Parallelism {
	switch {
	case c.DeviceCount() == 1:
		return ""
	case c.Split != nil && c.Pipeline:
		return Pipeline
	case c.Split != nil:
		return ModelParallel
	case c.ShardWeights:
		return ZeRO3
	case c.ShardGradients:
		return ZeRO2
	}
	return ZeRO1
}

// DeviceCount is how many devices work.
func (c Choice) DeviceCount() int { return max(c.Devices, 1) }

// Held is until how many runs later activations that leave a device keep their bytes, 0 without DelayedReuse.
func (c Choice) Held() int {
	if !c.DelayedReuse {
		return 0
	}
	return max(c.HeldRuns, 1)
}

// ByCPU says whether the CPU updates a slab.
func (c Choice) ByCPU(slab int) bool {
	return c.UpdatedByCPU != nil && c.UpdatedByCPU[slab] && c.OffloadedState[slab] && !c.OnDisk[slab]
}

// AllRows of CPURows is every step, however many rows it has.
const AllRows = 1 << 40

// CPUBlocks is how many blocks the CPU computes in a step of so many rows.
func (c Choice) CPUBlocks(rows int64) (n int) {
	for _, most := range c.CPURows {
		if most >= rows {
			n++
		}
	}
	return n
}

// HostCache says whether the keys and values of a block are stored in host memory.
func (c Choice) HostCache(block int) bool { return c.HostCaches || c.CPUComputes(block) }

// CPUComputes says whether the CPU computes the block in any step.
func (c Choice) CPUComputes(block int) bool { return c.CPURows != nil && c.CPURows[block] > 0 }

// CPUUpdates is how many slabs the CPU updates.
func (c Choice) CPUUpdates() (n int) {
	for k := range c.UpdatedByCPU {
		if c.ByCPU(k) {
			n++
		}
	}
	return n
}

// CPUUpdatesAll says whether the CPU updates all it can.
func (c Choice) CPUUpdatesAll() bool {
	for k := range c.UpdatedByCPU {
		if c.OffloadedState[k] && !c.OnDisk[k] && !c.UpdatedByCPU[k] {
			return false
		}
	}
	return true
}

// Delayed says whether a trained slab is updated in the next iteration.
func (c Choice) Delayed(slab int) bool { return c.DelayedUpdates && c.OffloadedState[slab] }

// DelayedSlabs is how many slabs are updated in the next iteration.
func (c Choice) DelayedSlabs() int {
	if !c.DelayedUpdates {
		return 0
	}
	return Count(c.OffloadedState)
}

// StaysOnDevice says whether everything is stored on the devices.
func (c Choice) StaysOnDevice() bool {
	return Count(c.Streamed)+Count(c.OffloadedState)+Count(c.OffloadedActivations) == 0
}

// blocksAt counts the blocks of some levels.
func (c Choice) blocksAt(levels ...Level) (n int) {
	for _, have := range c.Level {
		if slices.Contains(levels, have) {
			n++
		}
	}
	return n
}

// Count is how many of the marks are set.
func Count(marks []bool) (n int) {
	for _, set := range marks {
		if set {
			n++
		}
	}
	return n
}

// onDevices describes choices that several devices work on.
func onDevices(title string) func(Choice) string {
	return func(c Choice) string { return fmt.Sprintf("%s on %d devices", title, c.DeviceCount()) }
}

// Uniform treats all slabs and all blocks the same.
func Uniform(stream, offload bool, level Level, prefetch int) func(slabs, blocks int) Choice {
	return func(slabs, blocks int) Choice {
		c := Choice{Streamed: make([]bool, slabs), OffloadedState: make([]bool, slabs), Level: make([]Level, blocks),
			Prefetch: prefetch, PrefetchStates: 1, BreadthFirst: stream || offload}
		for i := range slabs {
			c.Streamed[i], c.OffloadedState[i] = stream, offload
		}
		for i := range blocks {
			c.Level[i] = level
		}
		return c
	}
}
