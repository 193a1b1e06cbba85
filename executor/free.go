package executor

import "spillway/plan"

// liveMost walks the steps and finds the most bytes of device memory that buffers
// in use take at once. Homes always count; a buffer counts from the first step
// that touches it to its free.
func (e *Executor) liveMost() int64 {
	var live, most int64
	alive := make([]bool, len(e.plan.Buffers))
	count := func(id int, now bool) {
		if alive[id] == now || e.plan.TierOf(id) != plan.OnDevice {
			return
		}
		alive[id] = now
		if now {
			live += e.plan.Buffers[id].Bytes
		} else {
			live -= e.plan.Buffers[id].Bytes
		}
		most = max(most, live)
	}
	for id, b := range e.plan.Buffers {
		count(id, b.Home)
	}
	for i, accesses := range e.plan.Accesses() {
		if s := &e.plan.Instructions[i]; s.Verb == plan.Free {
			count(s.Dst, false)
		}
		for _, a := range accesses {
			count(a.Buffer, true)
		}
	}
	return most
}
