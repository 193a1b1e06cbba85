package emit

import (
	"slices"

	"spillway/plan"
	"spillway/planner/pass"
)

// hostedAhead is how many slabs' gradients may wait on the host while it updates
// another.
const cpuUpdatesAhead = 2

// hostUpdate emits the update of a slab by the host's processor: its gradient comes
// down, and weights that rest on devices go up. State stays where it is.
func (e *emitter) cpuUpdate(k int) {
	owner, block := e.owner[k], e.l.Owner[k]
	s, state := &e.p.Slabs[k], &e.on[owner].slabs[k]
	var landed []int
	gradient := s.Gradient
	if gradient < 0 {
		gradient = e.buffer(s.Name+" gradients", plan.Gradient, e.host, e.gradBytes(k))
		e.moveOut(owner, state.gradient, gradient, block, -1)
		landed = append(landed, gradient)
	}
	weight := e.cpuWeights(k)
	if weight != s.Weight {
		landed = append(landed, weight)
	}
	e.landed = append(e.landed, landed)
	for i := range s.Pieces {
		e.add(e.updateInstruction(updateTurn{k, i}, e.cpu, weight, gradient, e.cpuClip))
	}
	if !e.deferring { // late ones have no turn: there is nothing to fetch
		e.updated += len(s.Pieces)
		e.fetched = max(e.fetched, e.updated)
	}
	state.gradient = -1
	if weight != s.Weight {
		e.uploads = append(e.uploads, upload{k, weight})
	}
	e.uploadAll(cpuUpdatesAhead)
}

// upload is the updated weights of a slab on the host, to go to the devices they rest
// on.
type upload struct{ slab, weight int }

// uploadAll sends updated weights up, but for the last few: the host may still be busy
// with those, and what comes to the device behind them would wait.
func (e *emitter) uploadAll(but int) {
	for ; len(e.uploads) > but; e.uploads = e.uploads[1:] {
		u := e.uploads[0]
		s := &e.p.Slabs[u.slab]
		for _, id := range append([]int{s.Weight}, s.Replicas...) {
			e.moveTo(e.p.Buffers[id].Arena, u.weight, id, e.l.Owner[u.slab], -1)
		}
		e.owed[u.slab] = false
	}
}

// uploadThrough sends updated weights up, those of a slab the last.
func (e *emitter) uploadThrough(k int) {
	if i := slices.IndexFunc(e.uploads, func(u upload) bool { return u.slab == k }); i >= 0 {
		e.uploadAll(len(e.uploads) - i - 1)
	}
}

// hostWeights is where the host writes the weights of a slab: their home, or room for
// a copy of those that rest on a device. Where there is no master, an update reads
// them.
func (e *emitter) cpuWeights(k int) int {
	s := &e.p.Slabs[k]
	if e.c.Streamed[k] {
		return s.Weight
	}
	id := e.buffer(s.Name+" weights", plan.Weight, e.host, s.WeightBytes)
	if !e.l.HasMaster(k) {
		e.moveOut(e.owner[k], s.Weight, id, e.l.Owner[k], -1)
	}
	return id
}

// cpuUpdateHolds lets what came to the host for an update live until that of some later
// slab comes, or of the last, so that copies do not wait for the CPU.
func (e *emitter) cpuUpdateHolds() (holds []pass.Hold) {
	for i, ids := range e.landed {
		if later := min(i+cpuUpdatesAhead, len(e.landed)-1); later > i && len(e.landed[later]) > 0 {
			for _, id := range ids {
				holds = append(holds, pass.Hold{Buffer: id, Until: e.landed[later][0]})
			}
		}
	}
	return holds
}
