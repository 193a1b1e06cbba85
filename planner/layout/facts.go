package layout

import "spillway/planner/strategy"

// Facts decide which strategies there are.
func (l *Layout) Facts() strategy.Facts {
	wholeParams := l.Training() && l.Goal.Optimizer.Rule.WholeParam()
	return strategy.Facts{Blocks: len(l.Model.Blocks), Slabs: len(l.Slabs.List), Levels: len(l.levels), Devices: max(l.Site.Devices, 1), MicroBatches: l.Goal.MicroBatches,
		Training: l.Training(), Disk: l.Site.Disk.Budget > 0, CPUUpdates: l.Training() && !wholeParams && l.Site.CPU.Bandwidth > 0, DelayedUpdates: l.Delayable(),
		WholeParams: wholeParams}
}

// Training says whether something is trained.
func (l *Layout) Training() bool { return l.Goal.Optimizer != nil }

// Allowed is a choice without what is impossible here, so that a search need not know.
func (l *Layout) Allowed(c strategy.Choice) strategy.Choice {
	if l.CanonicalSums() { // each device sends what it has of a gradient after every round
		c.ShardGradients = c.ShardGradients || c.DeviceCount() > 1 && c.Split == nil
		c.Pipeline = c.Pipeline && !l.entangledSlabs
	}
	c.BreadthFirst = l.BreadthFirst(c)
	c.DelayedUpdates = c.DelayedUpdates && l.Delayable() && strategy.Count(c.OnDisk) == 0
	if !l.Training() || l.Goal.Optimizer.Rule.WholeParam() { // the CPU updates piece by piece, without scratch memory
		c.UpdatedByCPU = nil
	}
	return c
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
