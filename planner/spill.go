package planner

// spill sends what a run leaves for its block's backward to the host: the block's
// input and the kept values.
func (e *emitter) spill(u use, micro int) {
	if u.phase != forward || !e.c.Spilled[u.block] || u.block < e.b.trained {
		return
	}
	for _, waiting := range e.waiting(u.block, micro) {
		b := e.p.Buffers[waiting.of[waiting.key]]
		host := e.buffer(b.Name, b.Class, e.host, b.Bytes)
		e.moveOut(waiting.of[waiting.key], host, u.block, micro)
		waiting.of[waiting.key] = host
	}
}

// unspillAhead fetches what the run at hand and the one after it find on the
// host, so that the next one's comes while this one computes.
func (e *emitter) unspillAhead() {
	for _, r := range e.runs[e.next:min(e.next+2, len(e.runs))] {
		if r.phase != backward || !e.c.Spilled[r.block] {
			continue
		}
		for _, waiting := range e.waiting(r.block, r.micro) {
			if id := waiting.of[waiting.key]; e.p.Buffers[id].Arena == e.host {
				waiting.of[waiting.key] = e.moveIn(id, r.block, r.micro)
			}
		}
	}
}

// waiting are the buffers that wait for a block's backward.
type waiting struct {
	of  map[at]int
	key at
}

func (e *emitter) waiting(block, micro int) (list []waiting) {
	for i := 0; ; i++ {
		key := at{block, i, micro}
		if _, ok := e.carry[key]; !ok {
			break
		}
		list = append(list, waiting{e.carry, key})
	}
	if key := (at{block, 0, micro}); e.has(e.kept, key) {
		list = append(list, waiting{e.kept, key})
	}
	return list
}

func (e *emitter) has(of map[at]int, key at) bool {
	_, ok := of[key]
	return ok
}
