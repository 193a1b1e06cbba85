package planner

// delayable says whether updates can be left to the next iteration: clipped ones, whose
// factor tells them whether there is anything to do. What rests on disk is kept there
// after every iteration, whole, so nothing is left undone beside it.
func (b *blueprint) delayable() bool { return b.training() && b.goal.Optimizer.Clip }

// queueLate lists the updates that the iteration before has left, in the order in which
// what they change is used.
func (e *emitter) queueLate() {
	for _, u := range e.uses {
		for _, k := range e.b.slabs.of[u.block] {
			if len(e.p.Slabs[k].Pieces) > 0 && e.c.delayed(k) && !e.owed[k] {
				e.owed[k] = true
				e.queueUpdate(k)
			}
		}
	}
	e.lateTurns = len(e.turns)
}

// updateLate emits what is owed of the slabs that a visit uses.
func (e *emitter) updateLate(u use) {
	for _, k := range e.b.slabs.of[u.block] {
		if e.owed[k] {
			e.lately(true, func() { e.update(k) })
			e.owed[k] = false
		}
	}
}

// lately has steps added as late ones, or not.
func (e *emitter) lately(late bool, emit func()) {
	before := e.late
	e.late = late
	emit()
	e.late = before
}
