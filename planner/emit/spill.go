package emit

import (
	"spillway/planner/layout"
)

// spill sends what a run leaves for its block's backward to the host: the block's
// input and the kept values.
func (e *emitter) offloadActivations(u use, micro int) {
	if u.phase != layout.Forward || !e.c.OffloadedActivations[u.block] || u.block < e.l.FirstTrained {
		return
	}
	for _, id := range e.waitingBuffers(u.block, micro) {
		b := e.p.Buffers[*id]
		host := e.buffer(b.Name, b.Class, e.host, b.Bytes)
		e.moveOut(u.device, *id, host, u.block, micro)
		*id = host
	}
}

// bring fetches what a run reads and finds on the host or on another device: the
// carry or its gradient from the block before, what was spilled.
func (e *emitter) fetchInputs(u use, micro int) {
	if u.phase == layout.Backward || u.phase == layout.ForwardBackward {
		e.found = e.grad.appendPresent(e.waitingBuffers(u.block, micro), u.block+1, micro)
	} else {
		e.found = e.carry.appendPresent(e.found[:0], u.block, micro)
	}
	for _, id := range e.found {
		if e.p.Buffers[*id].Arena != u.device {
			*id = e.moveIn(u.device, *id, u.block, micro)
		}
	}
}

// bringAhead fetches what the run after the n-th of use i finds on the host, so
// that it comes while that one computes.
func (e *emitter) prefetchActivations(i, n int) {
	u := e.uses[i]
	if n+1 < len(u.micros) {
		e.fetchOffloaded(u, u.micros[n+1])
		return
	}
	for _, next := range e.uses[i+1:] {
		if next.device == u.device {
			e.fetchOffloaded(next, next.micros[0])
			return
		}
	}
}

func (e *emitter) fetchOffloaded(u use, micro int) {
	if u.phase != layout.Backward {
		return
	}
	for _, id := range e.waitingBuffers(u.block, micro) {
		if e.p.Buffers[*id].Arena == e.host {
			*id = e.moveIn(u.device, *id, u.block, micro)
		}
	}
}

// waiting is where the buffers that wait for a block's backward are written down;
// valid until the next call.
func (e *emitter) waitingBuffers(block, micro int) []*int {
	e.found = e.saved.appendPresent(e.carry.appendPresent(e.found[:0], block, micro), block, micro)
	return e.found
}
