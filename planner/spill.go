package planner

// spill sends what a run leaves for its block's backward to the host: the block's
// input and the kept values.
func (e *emitter) spill(u use, micro int) {
	if u.phase != forward || !e.c.Spilled[u.block] || u.block < e.b.trained {
		return
	}
	for _, w := range e.waiting(u.block, micro) {
		b := e.p.Buffers[w.of[w.key]]
		host := e.buffer(b.Name, b.Class, e.host, b.Bytes)
		e.moveOut(u.device, w.of[w.key], host, u.block, micro)
		w.of[w.key] = host
	}
}

// bring fetches what a run reads and finds on the host or on another device: the
// carry or its gradient from the block before, what was spilled.
func (e *emitter) bring(u use, micro int) {
	list := e.borders(e.carry, u.block, micro)
	if u.phase == backward || u.phase == both {
		list = append(e.waiting(u.block, micro), e.borders(e.grad, u.block+1, micro)...)
	}
	for _, w := range list {
		if id := w.of[w.key]; e.p.Buffers[id].Arena != u.device {
			w.of[w.key] = e.moveIn(u.device, id, u.block, micro)
		}
	}
}

// bringAhead fetches what the run after the n-th of use i finds on the host, so
// that it comes while that one computes.
func (e *emitter) bringAhead(i, n int) {
	u := e.uses[i]
	if n+1 < len(u.micros) {
		e.bringSpilled(u, u.micros[n+1])
		return
	}
	for _, next := range e.uses[i+1:] {
		if next.device == u.device {
			e.bringSpilled(next, next.micros[0])
			return
		}
	}
}

func (e *emitter) bringSpilled(u use, micro int) {
	if u.phase != backward {
		return
	}
	for _, w := range e.waiting(u.block, micro) {
		if id := w.of[w.key]; e.p.Buffers[id].Arena == e.host {
			w.of[w.key] = e.moveIn(u.device, id, u.block, micro)
		}
	}
}

// border is a buffer at a block's border and where it is written down.
type border struct {
	of  map[at]int
	key at
}

// waiting are the buffers that wait for a block's backward.
func (e *emitter) waiting(block, micro int) []border {
	list := e.borders(e.carry, block, micro)
	if key := (at{block, 0, micro}); has(e.kept, key) {
		list = append(list, border{e.kept, key})
	}
	return list
}

func (e *emitter) borders(of map[at]int, block, micro int) (list []border) {
	for i := 0; has(of, at{block, i, micro}); i++ {
		list = append(list, border{of, at{block, i, micro}})
	}
	return list
}

func has(of map[at]int, key at) bool {
	_, ok := of[key]
	return ok
}
