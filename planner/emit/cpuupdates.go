package emit

import (
	"spillway/plan"
	"spillway/planner/pass"
)

// cpuUpdatesAhead is of how many slabs gradients may wait on the host while the CPU updates
// another.
const cpuUpdatesAhead = 2

// cpuUpdate emits the update of a slab by the CPU: its gradient comes down, and weights that
// are stored on devices go up. State stays where it is.
func (q *updater) cpuUpdate(k int) {
	owner, block := q.owner[k], q.l.Slabs.Owner[k]
	s, state := &q.p.Slabs[k], &q.on[owner].slabs[k]
	var landed []int
	gradient := s.Gradient
	if gradient < 0 {
		gradient = q.buffer(s.Name+" gradients", plan.Gradient, q.host, q.l.GradBytes(k))
		landed = append(landed, gradient)
	}
	if state.gradient >= 0 { // else it is at home already
		q.moveOut(owner, state.gradient, gradient, block, -1)
	}
	// The CPU writes weights at home, or into a buffer for a copy of those that are stored on a
	// device. Without master weights an update reads them too.
	weight := s.Weight
	if !q.c.Streamed[k] {
		weight = q.buffer(s.Name+" weights", plan.Weight, q.host, s.WeightBytes)
		landed = append(landed, weight)
		if !q.l.HasMaster(k) {
			q.moveOut(owner, s.Weight, weight, block, -1)
		}
	}
	q.landed = append(q.landed, landed)
	for i := range s.Pieces {
		q.add(q.instruction(turn{k, i}, q.cpu, weight, gradient, q.cpuClip))
	}
	if !q.deferring { // deferred ones have no turn: there is nothing to fetch
		q.updated += len(s.Pieces)
		q.fetched = max(q.fetched, q.updated)
	}
	state.gradient = -1
	if weight != s.Weight {
		q.uploads = append(q.uploads, upload{k, weight})
	}
	q.uploadAll(cpuUpdatesAhead)
}

// upload is the updated weights of a slab on the host, to go to the devices that store them.
type upload struct{ slab, weight int }

// uploadAll sends updated weights up, but for the last few: the CPU may still be busy with
// those, and what comes to the device behind them would wait.
func (q *updater) uploadAll(but int) {
	for ; len(q.uploads) > but; q.uploads = q.uploads[1:] {
		u := q.uploads[0]
		s := &q.p.Slabs[u.slab]
		for _, id := range append([]int{s.Weight}, s.Replicas...) {
			q.moveTo(q.p.Buffers[id].Arena, u.weight, id, q.l.Slabs.Owner[u.slab], -1)
		}
		q.owed[u.slab] = false
	}
}

// holds lets what came to the host for an update live until that of some later
// slab comes, or of the last, so that copies do not wait for the CPU.
func (q *updater) holds() (holds []pass.Hold) {
	for i, ids := range q.landed {
		if later := min(i+cpuUpdatesAhead, len(q.landed)-1); later > i && len(q.landed[later]) > 0 {
			for _, id := range ids {
				holds = append(holds, pass.Hold{Buffer: id, Until: q.landed[later][0]})
			}
		}
	}
	return holds
}
