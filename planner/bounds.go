package planner

import (
	"fmt"
	"slices"
)

// Bounds narrow the search without insisting on a strategy. The zero value bounds
// nothing.
type Bounds struct {
	// KeepBelow is the share of a device that may be filled before values a backward
	// reads are recomputed: plans that fill more recompute all of them. StayBelow is
	// the share that may be filled before weights and optimizer state leave the device:
	// plans that fill more keep none of them there. 0 is all of it. With either set,
	// nothing leaves the device as long as recomputing suffices.
	SaveBelow, StayBelow float64
	// Window is how many streamed slabs may be on a device at once, those on their way
	// home aside; 0 leaves it open.
	Prefetch int
	// Without are ways to share the work that are not taken.
	Without []Parallelism
}

func (b Bounds) check(i Constraints) error {
	for _, share := range []float64{b.SaveBelow, b.StayBelow} {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("%v is no share of a device; give a number above 0 and up to 1, or 0 for no bound", share)
		}
	}
	if b.Prefetch < 0 {
		return fmt.Errorf("a window of %d; at least 1 streamed slab must be on the device, and 0 leaves the number open", b.Prefetch)
	}
	if slices.Contains(b.Without, i.Parallelism) {
		return fmt.Errorf("%s is insisted on and ruled out at once", i.Parallelism)
	}
	return nil
}

// without takes the ways away that are ruled out.
func (s *search) without(list []way) []way {
	return slices.DeleteFunc(list, func(w way) bool {
		return slices.ContainsFunc(s.b.goal.Bounds.Without, func(out Parallelism) bool { return parallelismNamed[out] == w })
	})
}

// share of a device that the plan of a choice may fill.
func (s *search) share(c Choice) float64 {
	share, b := 1.0, s.b.goal.Bounds
	if b.SaveBelow > 0 && !s.recomputesAll(c) {
		share = min(share, b.SaveBelow)
	}
	if b.StayBelow > 0 && !s.allAway(c) {
		share = min(share, b.StayBelow)
	}
	return share
}

// recomputesAll says whether no block keeps values for its backward. The last block
// runs both at once and keeps nothing anyway.
func (s *search) recomputesAll(c Choice) bool {
	for i := s.b.trained; i < len(c.Level)-1 && s.b.training(); i++ {
		if c.Level[i] != SaveNone {
			return false
		}
	}
	return true
}

// stays says whether everything rests on the device.
func (c Choice) stays() bool {
	return count(c.Streamed)+count(c.OffloadedState)+count(c.OffloadedActivations) == 0
}

// beats says whether a candidate is to be taken instead of the best so far: where
// shares are given, one in which everything stays before one in which something leaves.
func (s *search) beats(c *candidate) bool {
	if s.best == nil {
		return true
	}
	if b := s.b.goal.Bounds; b.SaveBelow+b.StayBelow > 0 && c.choice.stays() != s.best.choice.stays() {
		return c.choice.stays()
	}
	return better(c, s.best)
}

// allAway says whether nothing rests on the device that could rest elsewhere.
func (s *search) allAway(c Choice) bool {
	for k, slab := range s.b.slabs.list {
		if !c.Streamed[k] || s.b.training() && slab.Elements > 0 && !c.OffloadedState[k] {
			return false
		}
	}
	return true
}
