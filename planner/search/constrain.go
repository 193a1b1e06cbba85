package search

import (
	"slices"

	"spillway/plan"
	"spillway/planner/strategy"
)

// parallelisms lists how devices may share the work: as the constraints say, else what
// makes sense for so many devices and micro-batches and is not ruled out.
func (s *chooser) parallelisms() (list []strategy.Parallelism) {
	c, f := s.b.Goal.Constraints, s.b.Facts()
	switch {
	case len(c.Places) > 0 && f.Devices > 1 && f.Training && f.MicroBatches > 1:
		return []strategy.Parallelism{strategy.ModelParallel, strategy.Pipeline}
	case len(c.Places) > 0 && f.Devices > 1:
		return []strategy.Parallelism{strategy.ModelParallel}
	case c.Parallelism == strategy.ZeRO1 && !f.Training: // there is nothing to shard
		return []strategy.Parallelism{strategy.ZeRO2}
	case c.Parallelism != "":
		return []strategy.Parallelism{c.Parallelism}
	}
	list = []strategy.Parallelism{""}
	for _, p := range searchOrder {
		if p == strategy.ZeRO1 && s.b.CanonicalSums() {
			continue // devices send gradients after every round, as with ZeRO-2
		}
		if f.Devices > 1 && strategy.Of(p).Sensible(f) && !slices.Contains(s.b.Goal.Bounds.Without, p) {
			list = append(list, p)
		}
	}
	return list
}

// searchOrder has ZeRO-2 first, which is seldom beaten: estimates rule the others out.
var searchOrder = []strategy.Parallelism{strategy.ZeRO2, strategy.ZeRO1, strategy.ZeRO3, strategy.Pipeline, strategy.ModelParallel}

// constrained changes a choice to what the constraints demand.
func (s *chooser) constrained(c strategy.Choice) strategy.Choice {
	want := s.b.Goal.Constraints
	if depth := s.b.Goal.Bounds.Prefetch; depth > 0 {
		c.Prefetch = depth
	}
	c.Rounds = s.b.Goal.Bounds.Rounds
	if !want.Any() {
		return c
	}
	if want.Activations != "" {
		level := map[strategy.Activations]strategy.Level{strategy.Saved: strategy.SaveAll, strategy.Recomputed: strategy.SaveNone}[want.Activations]
		for b := range c.Level {
			c.Level[b], c.OffloadedActivations[b] = level, false
		}
	}
	for k := range c.Streamed {
		if want.Weights != "" {
			c.Streamed[k] = want.Weights != plan.OnDevice
		}
		if want.State != "" {
			c.OffloadedState[k] = want.State != plan.OnDevice && s.b.Training()
		}
		if want.Weights != "" || want.State != "" {
			c.OnDisk[k] = want.Weights == plan.OnDisk || want.State == plan.OnDisk
		}
		if p, ok := want.Places[s.b.Model.Blocks[s.b.Slabs.Owner[k]].Name]; ok {
			c.Streamed[k], c.OnDisk[k] = p.Tier != plan.OnDevice, p.Tier == plan.OnDisk
		}
	}
	c = s.constrainUpdates(c)
	if len(want.Places) > 0 && c.Split != nil {
		for b, block := range s.b.Model.Blocks {
			c.Split[b] = want.Places[block.Name].Device
		}
	}
	c.BreadthFirst = !c.Pipeline && strategy.Count(c.Streamed)+strategy.Count(c.OffloadedState) > 0
	if strategy.Count(c.Streamed) > 0 {
		c.Prefetch = max(c.Prefetch, 1)
	}
	return c
}

// constrainUpdates has the updates of a choice run where the constraints say.
func (s *chooser) constrainUpdates(c strategy.Choice) strategy.Choice {
	who := s.b.Goal.Constraints.Updates
	if who == "" || !s.b.Training() {
		return c
	}
	if who == strategy.ByBoth && !s.cpuUpdatesSome(c) {
		every := false
		for k := range c.UpdatedByCPU {
			if s.b.Slabs.List[k].Elements > 0 {
				every = !every
				c.UpdatedByCPU[k] = every
			}
		}
	}
	for k := range c.UpdatedByCPU {
		c.UpdatedByCPU[k] = who == strategy.ByCPU || who == strategy.ByBoth && c.UpdatedByCPU[k]
		if c.UpdatedByCPU[k] {
			c.OffloadedState[k], c.OnDisk[k] = true, false
		}
	}
	return c
}

// cpuUpdatesSome says whether the CPU updates some of what is trained, and not all.
func (s *chooser) cpuUpdatesSome(c strategy.Choice) bool {
	yes, no := false, false
	for k, slab := range s.b.Slabs.List {
		if slab.Elements > 0 {
			yes, no = yes || c.UpdatedByCPU[k], no || !c.UpdatedByCPU[k]
		}
	}
	return yes && no
}

// share of a device that the plan of a choice may fill.
func (s *chooser) share(c strategy.Choice) float64 {
	share, b := 1.0, s.b.Goal.Bounds
	if b.SaveBelow > 0 && !s.recomputesAll(c) {
		share = min(share, b.SaveBelow)
	}
	if b.StayBelow > 0 && !s.allAway(c) {
		share = min(share, b.StayBelow)
	}
	return share
}

// recomputesAll says whether no block saves values for its backward. The last block runs
// both at once and saves nothing anyway.
func (s *chooser) recomputesAll(c strategy.Choice) bool {
	for i := s.b.FirstTrained; i < len(c.Level)-1 && s.b.Training(); i++ {
		if c.Level[i] != strategy.SaveNone {
			return false
		}
	}
	return true
}

// allAway says whether nothing is stored on the device that could be stored elsewhere.
func (s *chooser) allAway(c strategy.Choice) bool {
	for k, slab := range s.b.Slabs.List {
		if !c.Streamed[k] || s.b.Training() && slab.Elements > 0 && !c.OffloadedState[k] {
			return false
		}
	}
	return true
}
