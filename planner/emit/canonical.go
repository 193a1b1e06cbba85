package emit

import "spillway/plan"

// groups are gradients in progress where sums are canonical: every micro-batch writes one of its
// own, and they are added one after the other, in the order of the micro-batches. So no bit
// depends on who computes which micro-batch.
type groups struct {
	total []int    // by slab: the sum so far, on the slab's owner; -1 for none
	parts [][]part // by slab: what comes next, in order
}

// part is the gradient of a micro-batch on the device that computed it.
type part struct{ device, gradient int }

func newGroups(slabs int) *groups {
	g := &groups{total: make([]int, slabs), parts: make([][]part, slabs)}
	for k := range g.total {
		g.total[k] = -1
	}
	return g
}

// beginGroup gives a micro-batch that visits a block gradients of its own to write.
func (e *emitter) beginGroup(u visit) {
	here := &e.on[u.device]
	for _, k := range e.trainedBy(u) {
		here.slabs[k].gradient = e.buffer(e.p.Slabs[k].Name+" gradients", plan.Gradient, u.device, e.l.GradBytes(k))
		for _, id := range e.l.Slabs.Params[k] {
			here.written[id] = false
		}
	}
}

// endGroup takes what a micro-batch has written. On devices that are data parallel it waits
// until all have theirs of a round, so that none waits for another in the middle of it.
func (e *emitter) endGroup(u visit) {
	for _, k := range e.trainedBy(u) {
		here := &e.on[u.device].slabs[k]
		e.groups.parts[k] = append(e.groups.parts[k], part{u.device, here.gradient})
		here.gradient = -1
		if e.c.DeviceCount() == 1 || e.c.Split != nil {
			e.addGroups(k)
		}
	}
}

// addGroups brings the gradients that come next to the slab's owner, and adds them to the sum.
func (e *emitter) addGroups(k int) {
	owner := e.owner[k]
	s := plan.Instruction{Verb: plan.Reduce, Device: owner, Lane: plan.Compute, Block: e.l.Slabs.Owner[k], MicroBatch: -1, Slab: k}
	add := func(id int) {
		s.Bindings = append(s.Bindings, plan.Binding{Region: plan.InGrad, Index: len(s.Bindings), Buffer: id})
	}
	if e.groups.total[k] >= 0 {
		add(e.groups.total[k])
	}
	for _, p := range e.groups.parts[k] {
		id := p.gradient
		if p.device != owner {
			id = e.moveIn(owner, id, e.l.Slabs.Owner[k], -1)
		}
		add(id)
	}
	e.groups.total[k], e.groups.parts[k] = s.Bindings[0].Buffer, e.groups.parts[k][:0]
	if len(s.Bindings) > 1 {
		e.add(s)
	}
}

// sumGroups gives the owner of a slab its complete gradient.
func (e *emitter) sumGroups(k int) {
	if len(e.groups.parts[k]) > 0 {
		e.addGroups(k)
	}
	e.on[e.owner[k]].slabs[k].gradient = e.groups.total[k]
}
