package layout

import (
	"slices"

	"spillway/planner/strategy"
)

// Facts decide which strategies there are.
func (l *Layout) Facts() strategy.Facts {
	wholeParams := l.Training() && l.Goal.Optimizer.Rule.WholeParam()
	return strategy.Facts{Blocks: len(l.Model.Blocks), Slabs: len(l.Slabs.List), Levels: len(l.levels), Devices: max(l.Site.Devices, 1), MicroBatches: l.Goal.MicroBatches,
		Training: l.Training(), Disk: l.Site.Disk.Budget > 0, CPUUpdates: l.Training() && !wholeParams && l.Site.CPU.Bandwidth > 0, DelayedUpdates: l.Delayable(),
		WholeParams: wholeParams}
}

// Training says whether something is trained.
func (l *Layout) Training() bool { return l.Goal.Optimizer != nil }

// ReadsStraight says that the disk fills memory of the device itself: that of a CPU, where nothing is trained. Elsewhere
// what it reads passes host memory.
func (l *Layout) ReadsStraight() bool {
	return l.Site.SharedMemory && !l.Site.HostPinned && !l.Training()
}

// Allowed is a choice without what is impossible here, so that a search need not know.
func (l *Layout) Allowed(c strategy.Choice) strategy.Choice {
	if l.CanonicalSums() { // each device sends what it has of a gradient after every round
		c.ShardGradients = c.ShardGradients || c.DeviceCount() > 1 && c.Split == nil
		c.Pipeline = c.Pipeline && !l.entangledSlabs
	}
	c.BreadthFirst = l.BreadthFirst(c)
	c.Rounds = l.allowedRounds(c)
	c.DelayedUpdates = c.DelayedUpdates && l.Delayable() && strategy.Count(c.OnDisk) == 0
	if !l.Training() || l.Goal.Optimizer.Rule.WholeParam() { // the CPU updates piece by piece, without scratch memory
		c.UpdatedByCPU = nil
	}
	c.NextBatch = c.NextBatch && l.Training() && !l.Goal.Optimizer.Held // loops of one's own bring each batch when it is due
	c.CPURows = l.allowedCPURows(c)
	c.HostCaches = (c.HostCaches || l.Goal.HostCaches) && l.Model.Config.Cache != nil && c.DeviceCount() == 1
	return c
}

// allowedRounds is in how many rounds micro-batches can pass the blocks: where sums of a gradient can wait with the owner of its
// slab, and where no gradient is summed block by block over all micro-batches.
func (l *Layout) allowedRounds(c strategy.Choice) int {
	alone := c.DeviceCount() == 1 || c.Split != nil
	if !l.Training() || !c.BreadthFirst || c.Pipeline || !alone || l.entangledSlabs || c.Rounds < 2 {
		return 0
	}
	return min(c.Rounds, l.Goal.MicroBatches)
}

// allowedCPURows leaves the CPU those blocks of a plan to generate whose weights are in host memory
// and that write no result.
func (l *Layout) allowedCPURows(c strategy.Choice) []int64 {
	if c.CPURows == nil || l.Model.Config.Cache == nil || l.Site.CPUKernels == nil || c.DeviceCount() > 1 {
		return nil
	}
	rows := slices.Clone(c.CPURows)
	for i := range rows {
		last := i == len(rows)-1
		if last || slices.ContainsFunc(l.Slabs.OfBlock[i], func(k int) bool { return !c.Streamed[k] || c.OnDisk[k] }) {
			rows[i] = 0
		}
	}
	if c.CPURows = rows; c.CPUBlocks(1) == 0 {
		return nil
	}
	return rows
}

// OnCPU says whether the CPU computes a block in steps of as many rows as the model was traced for.
func (l *Layout) OnCPU(c strategy.Choice, block int) bool {
	return c.CPURows != nil && c.CPURows[block] >= l.Model.Config.Seq
}

// CanonicalSums says whether the gradients of micro-batches are computed alone and then added
// in order. With one micro-batch that concerns tied params, which two blocks have gradients of.
func (l *Layout) CanonicalSums() bool { return l.Goal.CanonicalSums && l.Training() }

// BreadthFirst says whether all micro-batches pass a block before the next block: where the
// choice says so, and where only that order sums a shared gradient block by block.
func (l *Layout) BreadthFirst(c strategy.Choice) bool {
	return c.BreadthFirst || l.Training() && !c.Pipeline && l.entangledSlabs
}

// Delayable says whether updates may be left to the next iteration: only clipped ones, whose
// clip factor tells them whether there is anything to do. What is stored on disk must be
// complete after every iteration, so with it nothing is delayed: see Allowed.
func (l *Layout) Delayable() bool {
	return l.Training() && l.Goal.Optimizer.Clip && !l.Goal.Optimizer.Held
}
