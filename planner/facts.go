package planner

import "spillway/planner/strategy"

// facts decide which strategies there are.
func (b *Layout) facts() strategy.Facts {
	return strategy.Facts{Blocks: len(b.model.Blocks), Slabs: len(b.slabs.list), Levels: len(b.levels), Devices: max(b.site.Devices, 1), MicroBatches: b.goal.MicroBatches,
		Training: b.training(), Disk: b.site.Disk.Budget > 0, CPUUpdates: b.cpuUpdatesTimed(), DelayedUpdates: b.delayable(),
		WholeParams: b.training() && b.goal.Optimizer.Rule.WholeParam()}
}

func (b *Layout) training() bool { return b.goal.Optimizer != nil }

// checkGoal refuses what cannot be, and limits the site to the devices that are named.
func (b *Layout) checkGoal() error {
	if err := b.goal.Constraints.Check(b.model, b.facts()); err != nil {
		return err
	}
	if n := b.goal.Constraints.Devices(); n > 0 {
		b.site.Devices = n
	}
	return b.goal.Bounds.Check(b.goal.Constraints)
}

// allowed is a choice without what cannot be here.
func (b *Layout) allowed(c strategy.Choice) strategy.Choice {
	c.BreadthFirst = b.BreadthFirst(c)
	c.DelayedUpdates = c.DelayedUpdates && b.delayable() && strategy.Count(c.OnDisk) == 0
	if !b.cpuCanUpdate() {
		c.UpdatedByCPU = nil
	}
	return c
}

// vertical says whether all micro-batches pass a block before the next: where the
// choice says so, and where only that order sums a gradient block by block.
func (b *Layout) BreadthFirst(c strategy.Choice) bool {
	return c.BreadthFirst || b.training() && !c.Pipeline && b.entangledSlabs
}

// hostable says whether the host's processor can update what is trained: piece by
// piece, without scratch memory.
func (b *Layout) cpuCanUpdate() bool { return b.training() && !b.goal.Optimizer.Rule.WholeParam() }

// hostsFast says whether it is known how fast the host updates, so that doing so is
// worth a thought.
func (b *Layout) cpuUpdatesTimed() bool { return b.cpuCanUpdate() && b.site.CPU.Bandwidth > 0 }

// delayable says whether updates can be left to the next iteration: clipped ones, whose
// factor tells them whether there is anything to do. What rests on disk is kept there
// after every iteration, whole, so nothing is left undone beside it.
func (b *Layout) delayable() bool { return b.training() && b.goal.Optimizer.Clip }
