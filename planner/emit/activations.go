package emit

import (
	"slices"

	"spillway/plan"
	"spillway/planner/layout"
)

// offloadActivations sends what a run leaves for its block's backward to the host: the
// block's input and the saved values.
func (e *emitter) offloadActivations(u visit, micro int) {
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

// fetchInputs brings what a run reads and is not on its device: what the block before gives
// it, the gradient of that, and offloaded activations.
func (e *emitter) fetchInputs(u visit, micro int) {
	if u.phase == layout.Backward || u.phase == layout.ForwardBackward {
		e.present = e.grad.appendPresent(e.waitingBuffers(u.block, micro), u.block+1, micro)
	} else {
		e.present = e.carry.appendPresent(e.present[:0], u.block, micro)
	}
	for _, id := range e.present {
		switch at := e.p.Buffers[*id].Arena; {
		case at == u.device:
		case e.c.CPURows != nil && u.device == e.cpu:
			*id = e.handDown(at, *id, u.block, micro)
		case e.c.CPURows != nil && at == e.host:
			*id = e.handUp(u.device, *id, u.block, micro)
		default:
			*id = e.moveIn(u.device, *id, u.block, micro)
		}
	}
}

// handDown copies what a device computed to the host, for the CPU.
func (e *emitter) handDown(from, src, block, micro int) int {
	b := e.p.Buffers[src]
	dst := e.buffer(b.Name, b.Class, e.host, b.Bytes)
	e.moveOut(from, src, dst, block, micro)
	return dst
}

// handUp copies what the CPU computed to a device. It is small and the next run waits for it, so it
// goes with the runs: on the lane in it would queue behind weights.
func (e *emitter) handUp(dev, src, block, micro int) int {
	b := e.p.Buffers[src]
	dst := e.buffer(b.Name, b.Class, dev, b.Bytes)
	e.add(plan.Instruction{Verb: plan.Move, Device: dev, Lane: plan.Compute, Block: block, MicroBatch: micro, Src: src, Dst: dst})
	return dst
}

// fetchCaches brings keys and values that are stored on the host to a device that runs their
// block.
func (e *emitter) fetchCaches(u visit) {
	e.cached = nil
	if u.device == e.cpu || !e.c.HostCache(u.block) {
		return
	}
	for _, home := range e.caches[u.block] {
		e.cached = append(e.cached, e.moveIn(u.device, home, u.block, -1))
	}
}

// returnCaches stores them again.
func (e *emitter) returnCaches(u visit) {
	for i, id := range e.cached {
		e.moveOut(u.device, id, e.caches[u.block][i], u.block, -1)
	}
	e.cached = nil
}

// prefetchActivations brings what the runs after the n-th of a visit find on the host, so
// that it comes while the n-th computes: the next run's, and those of some more whose blocks ask for it.
func (e *emitter) prefetchActivations(i, n int) {
	device, most, ahead := e.visits[i].device, 1, 0
	if e.c.PrefetchActivations != nil {
		most = max(slices.Max(e.c.PrefetchActivations), 1)
	}
	for _, u := range e.visits[i:] {
		if u.device != device {
			continue
		}
		for _, micro := range u.micros[n+1:] {
			if ahead++; ahead == 1 || e.c.PrefetchActivations[u.block] >= ahead {
				e.fetchOffloaded(u, micro)
			}
			if ahead == most {
				return
			}
		}
		n = -1
	}
}

// fetchOffloaded brings what waits on the host for a backward.
func (e *emitter) fetchOffloaded(u visit, micro int) {
	if u.phase != layout.Backward {
		return
	}
	for _, id := range e.waitingBuffers(u.block, micro) {
		if e.p.Buffers[*id].Arena == e.host {
			*id = e.moveIn(u.device, *id, u.block, micro)
		}
	}
}

// waitingBuffers points at the numbers of the buffers that wait for a block's backward; valid
// until the next call.
func (e *emitter) waitingBuffers(block, micro int) []*int {
	e.present = e.saved.appendPresent(e.carry.appendPresent(e.present[:0], block, micro), block, micro)
	return e.present
}
