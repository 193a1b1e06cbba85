package layout

import "spillway/planner/strategy"

// facts decide which strategies there are.
func (b *Layout) Facts() strategy.Facts {
	return strategy.Facts{Blocks: len(b.Model.Blocks), Slabs: len(b.Slabs.List), Levels: len(b.levels), Devices: max(b.Site.Devices, 1), MicroBatches: b.Goal.MicroBatches,
		Training: b.Training(), Disk: b.Site.Disk.Budget > 0, CPUUpdates: b.cpuUpdatesTimed(), DelayedUpdates: b.Delayable(),
		WholeParams: b.Training() && b.Goal.Optimizer.Rule.WholeParam()}
}

func (b *Layout) Training() bool { return b.Goal.Optimizer != nil }

// checkGoal refuses what cannot be, and limits the site to the devices that are named.
func (b *Layout) checkGoal() error {
	if err := b.Goal.Constraints.Check(b.Model, b.Facts()); err != nil {
		return err
	}
	if n := b.Goal.Constraints.Devices(); n > 0 {
		b.Site.Devices = n
	}
	return b.Goal.Bounds.Check(b.Goal.Constraints)
}

// allowed is a choice without what cannot be here.
func (b *Layout) Allowed(c strategy.Choice) strategy.Choice {
	c.BreadthFirst = b.BreadthFirst(c)
	c.DelayedUpdates = c.DelayedUpdates && b.Delayable() && strategy.Count(c.OnDisk) == 0
	if !b.cpuCanUpdate() {
		c.UpdatedByCPU = nil
	}
	return c
}

// vertical says whether all micro-batches pass a block before the next: where the
// choice says so, and where only that order sums a gradient block by block.
func (b *Layout) BreadthFirst(c strategy.Choice) bool {
	return c.BreadthFirst || b.Training() && !c.Pipeline && b.entangledSlabs
}

// hostable says whether the host's processor can update what is trained: piece by
// piece, without scratch memory.
func (b *Layout) cpuCanUpdate() bool { return b.Training() && !b.Goal.Optimizer.Rule.WholeParam() }

// hostsFast says whether it is known how fast the host updates, so that doing so is
// worth a thought.
func (b *Layout) cpuUpdatesTimed() bool { return b.cpuCanUpdate() && b.Site.CPU.Bandwidth > 0 }

// delayable says whether updates can be left to the next iteration: clipped ones, whose
// factor tells them whether there is anything to do. What rests on disk is kept there
// after every iteration, whole, so nothing is left undone beside it.
func (b *Layout) Delayable() bool { return b.Training() && b.Goal.Optimizer.Clip }
