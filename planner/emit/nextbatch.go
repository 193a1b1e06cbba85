package emit

import "spillway/plan"

// takeBatches begins with what came during the iteration before.
func (e *emitter) takeBatches() {
	for d, n := range e.next {
		if n.home >= 0 {
			from := e.p.Buffers[n.home]
			dst := e.buffer(e.p.Buffers[e.batch[n.micro]].Name, from.Class, d, from.Bytes)
			e.add(plan.Instruction{Verb: plan.Move, Device: d, Lane: plan.Compute, Block: -1, MicroBatch: n.micro, Src: n.home, Dst: dst})
			e.on[d].batch[n.micro] = dst
		}
	}
}

// bringNextBatch has the next batch come, behind everything else that goes to the devices.
func (e *emitter) bringNextBatch() {
	for d, n := range e.next {
		if n.home >= 0 {
			e.moveTo(d, e.batch[n.micro], n.home, -1, n.micro)
		}
	}
}

// fromHost is an instruction of a training iteration as an evaluation has it: its batch comes from the host, so that the
// next one of the training stays where it is.
func fromHost(p *plan.Plan, s plan.Instruction) plan.Instruction {
	if !p.TakesBatch(&s) {
		return s
	}
	for i := range p.Instructions {
		if b := &p.Instructions[i]; p.BringsNextBatch(b) && b.Dst == s.Src {
			s.Src, s.Lane = b.Src, plan.In
		}
	}
	return s
}
