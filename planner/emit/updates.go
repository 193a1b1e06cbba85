package emit

import (
	"slices"

	"spillway/plan"
)

// updater emits the optimizer: which piece is updated when, by which device, and the moves
// of optimizer state, gradients and weights that an update needs.
type updater struct {
	*emitter
	turns            []turn // updates of the iteration by devices, in order
	fetched, updated int    // how many of them
	deferredCount    int    // how many complete the previous iteration; they come first
	owed             []bool // by slab: the previous iteration's update is not made yet

	deferredCPU     []int   // slabs that the CPU updates for the previous iteration, in the order of first use
	deferredCPUDone int     // how many of them it has
	landed          [][]int // by update of the CPU: buffers on the host that came for it
	uploads         []upload
}

// turn is the update of one piece.
type turn struct{ slab, piece int }

// newUpdater lists the updates of an iteration in the order they come.
func newUpdater(e *emitter) *updater {
	q := &updater{emitter: e, owed: make([]bool, len(e.p.Slabs))}
	if !e.l.Training() {
		return q
	}
	q.queueDeferred()
	if !q.l.Goal.Optimizer.Clip {
		for _, k := range slices.Concat(q.final...) {
			q.queue(k)
		}
		return q
	}
	for k := len(q.p.Slabs) - 1; k >= 0; k-- {
		if !q.owed[k] {
			q.queue(k)
		}
	}
	return q
}

// queue adds the pieces of a slab.
func (q *updater) queue(k int) {
	for i := range q.p.Slabs[k].Pieces {
		q.turns = append(q.turns, turn{k, i})
	}
}

// fetchAhead brings what the next updates need, so that it comes while something else
// computes and what was updated before is on its way out: master weights and optimizer state
// of their pieces, and with clipping gradient and weights of their slabs.
func (q *updater) fetchAhead() {
	end := len(q.turns)
	if q.updated < q.deferredCount { // of others there are no gradients yet
		end = q.deferredCount
	}
	for ; q.fetched < end && q.fetched <= q.updated+q.c.PrefetchStates*q.c.DeviceCount(); q.fetched++ {
		t := q.turns[q.fetched]
		owner, block := q.owner[t.slab], q.l.Slabs.Owner[t.slab]
		slab, state := &q.p.Slabs[t.slab], &q.on[owner].slabs[t.slab]
		piece, here := slab.Pieces[t.piece], &state.pieces[t.piece]
		if here.master < 0 && piece.Master >= 0 {
			here.master = q.moveIn(owner, piece.Master, block, -1)
		}
		if here.state < 0 && piece.State >= 0 {
			here.state = q.moveIn(owner, piece.State, block, -1)
		}
		if !q.l.Goal.Optimizer.Clip || q.c.ByCPU(t.slab) {
			continue
		}
		if state.gradient < 0 {
			state.gradient = q.moveIn(owner, slab.Gradient, block, -1)
		}
		if !q.owed[t.slab] { // else the weights are prefetched for the visit that owes the update
			q.prefetchers[owner].open(t.slab)
		}
	}
}

// update emits the optimizer on a slab, piece by piece, and sends what it changed home and
// to the replicas. The state of its last pieces may go home behind its weights: see
// heldBack.
func (q *updater) update(k int) {
	if q.c.ByCPU(k) {
		q.cpuUpdate(k)
		return
	}
	owner, block := q.owner[k], q.l.Slabs.Owner[k]
	s, state := q.p.Slabs[k], &q.on[owner].slabs[k]
	q.prefetchers[owner].open(k)
	sent, held := q.updated, q.heldBack(k)
	for range s.Pieces {
		q.fetchAhead()
		q.add(q.instruction(q.turns[q.updated], owner, state.weight, state.gradient, q.on[owner].clip))
		q.updated++
		for ; sent < q.updated-held; sent++ {
			q.sendStates(q.turns[sent])
		}
	}
	if state.weight != s.Weight {
		q.moveOut(owner, state.weight, s.Weight, block, -1)
	}
	for ; sent < q.updated; sent++ {
		q.sendStates(q.turns[sent])
	}
	for _, id := range s.Replicas {
		q.moveTo(q.p.Buffers[id].Arena, state.weight, id, block, -1)
	}
	state.gradient = -1
}

// sendStates sends the optimizer state of a piece home.
func (q *updater) sendStates(t turn) {
	owner, home := q.owner[t.slab], q.p.Slabs[t.slab].Pieces[t.piece]
	state := &q.on[owner].slabs[t.slab].pieces[t.piece]
	for _, p := range []struct {
		now  *int
		home int
	}{{&state.master, home.Master}, {&state.state, home.State}} {
		if *p.now >= 0 && *p.now != p.home {
			q.moveOut(owner, *p.now, p.home, q.l.Slabs.Owner[t.slab], -1)
			*p.now = -1
		}
	}
}

// leastHeldBack is for how many pieces state may wait for the weights of their slab, however
// little is fetched ahead: about as many pieces as the link to the host lags behind the link
// from it, since it still carries the state of the slab before.
const leastHeldBack = 2

// heldBack is for how many pieces of a slab state goes home behind the slab's weights. The
// last slab that an iteration updates is mostly the first that the next one uses; copies
// behind its weights carry over into the next iteration. Until then the state waits in the
// memory that runs had for their inner values, so it may not be more than that.
func (q *updater) heldBack(k int) (held int) {
	s := &q.p.Slabs[k]
	if q.deferring || q.disk >= 0 || q.turns[len(q.turns)-1].slab != k || q.on[q.owner[k]].slabs[k].weight == s.Weight {
		return 0
	}
	var free int64
	for program := range q.programs {
		free = max(free, program.Frame)
	}
	var each int64 // what master weights and optimizer state of a piece take
	for _, id := range []int{s.Pieces[0].Master, s.Pieces[0].State} {
		if id >= 0 {
			each += q.p.Buffers[id].Bytes
		}
	}
	most := max(leastHeldBack, q.c.PrefetchStates-2) // two are on their way at most
	for held < most && int64(held+1)*each <= free {
		held++
	}
	return held
}

// instruction is the update of a piece by a device, with the state that is at hand.
func (q *updater) instruction(t turn, dev, weight, gradient, clip int) plan.Instruction {
	state := q.on[q.owner[t.slab]].slabs[t.slab].pieces[t.piece]
	s := plan.Instruction{Verb: plan.Update, Device: dev, Lane: plan.Compute, Block: q.l.Slabs.Owner[t.slab], MicroBatch: -1, Slab: t.slab, Piece: t.piece, Bindings: []plan.Binding{
		{Region: plan.InWeight, Buffer: weight}, {Region: plan.InGrad, Buffer: gradient}, {Region: plan.InClip, Buffer: clip}}}
	if state.master >= 0 {
		s.Bindings = append(s.Bindings, plan.Binding{Region: plan.InMaster, Buffer: state.master})
	}
	if state.state >= 0 {
		s.Bindings = append(s.Bindings, plan.Binding{Region: plan.InState, Buffer: state.state})
	}
	if state.scratch > 0 && dev != q.cpu {
		s.Bindings = append(s.Bindings, plan.Binding{Region: plan.InFrame, Buffer: q.buffer(q.p.Slabs[t.slab].Name+" update", plan.Workspace, dev, state.scratch)})
	}
	return s
}

// clippedUpdates emits the second half of an iteration with clipping: the norm of all
// gradients, then all updates but delayed ones.
func (q *updater) clippedUpdates() {
	q.add(plan.Instruction{Verb: plan.Reduce, Lane: plan.Compute, Block: -1, MicroBatch: -1, Bindings: []plan.Binding{
		{Region: plan.OutPartial, Buffer: q.partials}, {Region: plan.InClip, Buffer: q.on[0].clip}}})
	for d := 1; d < len(q.on); d++ {
		q.moveTo(d, q.on[0].clip, q.on[d].clip, -1, -1)
	}
	if q.cpu >= 0 {
		q.moveOut(0, q.on[0].clip, q.cpuClip, -1, -1)
	}
	for q.updated < len(q.turns) {
		k := q.turns[q.updated].slab
		q.fetchAhead()
		q.update(k)
		if q.c.Streamed[k] && !q.c.ByCPU(k) {
			q.on[q.owner[k]].slabs[k].weight = -1
		}
	}
}
