package emit

import "slices"

// queueLate lists the updates that the iteration before has left, in the order in which
// what they change is used.
func (e *emitter) queueDeferred() {
	for _, u := range e.uses {
		for _, k := range e.l.Slabs.OfBlock[u.block] {
			if len(e.p.Slabs[k].Pieces) == 0 || !e.c.Delayed(k) || e.owed[k] {
				continue
			}
			if e.owed[k] = true; e.c.ByCPU(k) {
				e.deferredCPU = append(e.deferredCPU, k)
			} else {
				e.queueUpdate(k)
			}
		}
	}
	e.deferredTurns = len(e.updateTurns)
}

// updateLate emits what is owed of the slabs that a visit uses. The host works ahead.
func (e *emitter) updateDeferred(u use) {
	e.withDeferred(true, func() {
		for _, k := range e.l.Slabs.OfBlock[u.block] {
			switch {
			case e.c.ByCPU(k):
				e.cpuUpdateDeferred(k)
			case e.owed[k]:
				e.update(k)
				e.owed[k] = false
			}
		}
	})
}

// hostLate has the host update a slab that is used now, where it is owed, and a few to
// come, and sends its weights up.
func (e *emitter) cpuUpdateDeferred(k int) {
	at := slices.Index(e.deferredCPU, k)
	for ; at >= 0 && e.deferredCPUDone < len(e.deferredCPU) && e.deferredCPUDone <= at+cpuUpdatesAhead; e.deferredCPUDone++ {
		next := e.deferredCPU[e.deferredCPUDone]
		e.cpuUpdate(next)
		if e.c.Streamed[next] { // else when it has gone up
			e.owed[next] = false
		}
	}
	if at >= 0 {
		e.uploadThrough(k)
	}
}

// takesOld says whether a device needs the weights of a slab as they are before a late
// update: to make it, where there is no master.
func (e *emitter) needsOldWeights(k, dev int) bool {
	return e.owner[k] == dev && !e.c.ByCPU(k) && !e.l.HasMaster(k)
}

// lately has steps added as late ones, or not.
func (e *emitter) withDeferred(late bool, emit func()) {
	before := e.deferring
	e.deferring = late
	emit()
	e.deferring = before
}
