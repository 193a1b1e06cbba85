package emit

import (
	"slices"

	"spillway/plan"
)

// prefetcher streams weights that are not stored on its device: from the host, or from the
// device that owns them. At any moment the device holds the slabs of the visit at hand and,
// up to the prefetch depth, those of the visits that come next. What is not among them is
// dropped, since the home has the same bytes.
type prefetcher struct {
	e      *emitter
	device int
	need   [][]int // by visit of the device: the slabs it must fetch
	next   []int   // by visit: the next one that must fetch some
	hold   []bool  // by slab: it is here for good
	here   []int   // slabs that were fetched and not dropped
	wanted []int   // scratch of ahead
}

func newPrefetchers(e *emitter) []*prefetcher {
	list := make([]*prefetcher, len(e.on))
	for d := range list {
		w := &prefetcher{e: e, device: d, hold: make([]bool, len(e.p.Slabs))}
		for k := range w.hold {
			w.hold[k] = e.on[d].slabs[k].weight >= 0
		}
		list[d] = w
	}
	for _, u := range e.visits {
		w := list[u.device]
		var need []int
		for _, k := range e.l.Slabs.OfBlock[u.block] {
			if !w.hold[k] {
				need = append(need, k)
			}
		}
		w.need = append(w.need, need)
	}
	for _, w := range list {
		w.next = make([]int, len(w.need))
		for turn, next := len(w.need)-1, len(w.need); turn >= 0; turn-- {
			w.next[turn] = next
			if len(w.need[turn]) > 0 {
				next = turn
			}
		}
	}
	return list
}

// ahead lists the slabs that the device should hold at a visit: those it reads, then the
// next ones as far as the prefetch depth reaches.
func (w *prefetcher) ahead(turn int) []int {
	hold, depth := append(w.wanted[:0], w.need[turn]...), w.e.c.Prefetch
	for n := w.next[turn]; n < len(w.need) && len(hold) < depth; n = w.next[n] {
		for _, k := range w.need[n] {
			if !slices.Contains(hold, k) && len(hold) < depth {
				hold = append(hold, k)
			}
		}
	}
	w.wanted = hold
	return hold
}

// enter fetches what is missing before a visit.
func (w *prefetcher) enter(turn int) {
	for _, k := range w.ahead(turn) {
		// What is owed an update comes after it, unless the device needs the weights to make it:
		// where there are no master weights.
		if w.e.updates.owed[k] && (w.e.owner[k] != w.device || w.e.c.ByCPU(k) || w.e.l.HasMaster(k)) {
			continue
		}
		w.fetch(k)
	}
}

// fetch brings the weights of a slab, if they are not here.
func (w *prefetcher) fetch(k int) {
	if state := &w.e.on[w.device].slabs[k]; state.weight < 0 {
		w.e.withDeferred(w.e.deferring || w.e.updates.owed[k], func() {
			state.weight = w.e.moveIn(w.device, w.e.p.Slabs[k].Weight, w.e.l.Slabs.Owner[k], -1)
		})
		w.here = append(w.here, k)
	}
}

// open brings the weights of a slab for an update. Where there are master weights an update
// only writes them, and an empty buffer suffices.
func (w *prefetcher) open(k int) {
	state, s := &w.e.on[w.device].slabs[k], &w.e.p.Slabs[k]
	if state.weight < 0 && w.e.l.HasMaster(k) {
		state.weight = w.e.buffer(s.Name+" weights", plan.Weight, w.device, s.WeightBytes)
		w.here = append(w.here, k)
	}
	w.fetch(k)
}

// leave drops what the next visits do not need.
func (w *prefetcher) leave(turn int) {
	var next []int
	if turn+1 < len(w.need) {
		next = w.ahead(turn + 1)
	}
	w.here = slices.DeleteFunc(w.here, func(k int) bool {
		if slices.Contains(next, k) {
			return false
		}
		w.e.on[w.device].slabs[k].weight = -1
		return true
	})
}
