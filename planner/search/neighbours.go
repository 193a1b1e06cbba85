package search

import (
	"slices"

	"spillway/planner/strategy"
)

// neighbours collects mixes near one: those added so far, and the one that is being changed.
type neighbours struct {
	strategy.Mix
	of        strategy.Mix
	stride    int    // by which numbers change
	most      [6]int // that each number can be
	facts     strategy.Facts
	thorough  bool // mixes are added that seldom help
	mostAhead int  // updates for which state is fetched beforehand
	list      []strategy.Mix
}

// neighboursOf lists the mixes near one: those one change away, with a number up or down, or
// one up and another down, which trades one saving for another; and those that treat
// updates, or what is prefetched, otherwise.
func (s *search) neighboursOf(m strategy.Mix, stride int) []strategy.Mix {
	f := s.b.Facts()
	v := &neighbours{Mix: m, of: m, stride: stride, most: f.Most(), facts: f, thorough: s.persists(), mostAhead: max(s.b.MostPieces()+1, 2)}
	for i := range v.Numbers() {
		for _, by := range []int{-stride, stride} {
			v.change(i, by)
			v.add()
		}
		for j := range v.Numbers() {
			if i != j {
				v.change(i, -stride)
				v.change(j, stride)
				v.add()
			}
		}
	}
	if most := v.most[strategy.OffloadedActivations]; m.OffloadedActivations < most {
		v.OffloadedActivations = most // what more is saved waits there too
		v.change(strategy.Recompute, -stride)
		v.add()
	}
	v.otherUpdates()
	v.otherPrefetch()
	return v.list
}

// change moves a number of the mix within its range.
func (v *neighbours) change(i, by int) {
	n := v.Numbers()[i]
	*n = min(max(*n+by, 0), v.most[i])
}

// add adds the mix as it is now, and begins anew.
func (v *neighbours) add() {
	if v.Mix != v.of {
		v.list = append(v.list, v.Mix)
	}
	v.Mix = v.of
}

// mostFirstOnDevice is how many slabs at most the device updates because their gradients
// come last, while the CPU updates others.
const mostFirstOnDevice = 3

// otherUpdates has others run the optimizer, or at another time. State that the device needs
// for updates instead of the CPU is fetched beforehand.
func (v *neighbours) otherUpdates() {
	if v.of.UpdatedByCPU > 0 && v.of.PrefetchStates == 0 {
		v.change(strategy.UpdatedByCPU, -v.stride)
		v.PrefetchStates = 1
		v.add()
	}
	if v.thorough && v.of.UpdatedByCPU > 0 {
		for n := range min(mostFirstOnDevice, v.most[strategy.UpdatedByCPU]) + 1 {
			for _, ahead := range []int{v.of.PrefetchStates, v.mostAhead} {
				v.FirstOnDevice, v.PrefetchStates = n, ahead
				v.add()
			}
		}
	}
	if v.facts.DelayedUpdates && v.of.OffloadedState > 0 {
		v.DelayedUpdates = !v.DelayedUpdates
		v.add()
	}
}

// mostPrefetch is the deepest prefetch that is tried.
const mostPrefetch = 4

// otherPrefetch has more on its way to the device, or less. Other numbers give the memory
// that this takes.
func (v *neighbours) otherPrefetch() {
	for _, by := range []int{-1, 1} {
		for _, give := range []int{0, by * v.stride} {
			v.Prefetch = min(max(v.Prefetch+by, 1), mostPrefetch)
			v.change(strategy.Streamed, give)
			v.add()
			if v.facts.Training && (give == 0 || v.thorough) {
				// State is fetched for no update beforehand, one, two, or all pieces of the largest
				// slab and one more: what the update of a slab whose gradient is the last needs may
				// have come by then.
				ahead := []int{0, 1, 2, v.mostAhead}
				v.PrefetchStates = ahead[min(max(slices.Index(ahead, v.PrefetchStates)+by, 0), len(ahead)-1)]
				v.change(strategy.Recompute, give)
				v.add()
			}
		}
	}
}
