package emit

import "slices"

// queueDeferred lists the updates that the previous iteration has left, in the order in which
// the weights they change are used.
func (q *updater) queueDeferred() {
	for _, u := range q.visits {
		for _, k := range q.l.Slabs.OfBlock[u.block] {
			if len(q.p.Slabs[k].Pieces) == 0 || !q.c.Delayed(k) || q.owed[k] {
				continue
			}
			if q.owed[k] = true; q.c.ByCPU(k) {
				q.deferredCPU = append(q.deferredCPU, k)
			} else {
				q.queue(k)
			}
		}
	}
	q.deferredCount = len(q.turns)
}

// updateDeferred makes the updates that are owed to the slabs a visit uses. The CPU works
// ahead.
func (q *updater) updateDeferred(u visit) {
	q.withDeferred(true, func() {
		for _, k := range q.l.Slabs.OfBlock[u.block] {
			switch {
			case q.c.ByCPU(k):
				q.cpuUpdateDeferred(k)
			case q.owed[k]:
				q.update(k)
				q.owed[k] = false
			}
		}
	})
}

// cpuUpdateDeferred has the CPU update a slab that is used now, where that is owed, and a few
// to come, and sends its weights up.
func (q *updater) cpuUpdateDeferred(k int) {
	at := slices.Index(q.deferredCPU, k)
	for ; at >= 0 && q.deferredCPUDone < len(q.deferredCPU) && q.deferredCPUDone <= at+cpuUpdatesAhead; q.deferredCPUDone++ {
		next := q.deferredCPU[q.deferredCPUDone]
		q.cpuUpdate(next)
		if q.c.Streamed[next] { // else when it has gone up
			q.owed[next] = false
		}
	}
	if i := slices.IndexFunc(q.uploads, func(u upload) bool { return u.slab == k }); at >= 0 && i >= 0 {
		q.uploadAll(len(q.uploads) - i - 1)
	}
}
