package emit

import (
	"slices"

	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// countGradients finds after which visit the gradient of each slab is complete, and where
// gradients are sharded, after which visits all devices have added to it in a round.
func (e *emitter) countGradients() {
	type source struct{ device, block int }
	last := make([]int, len(e.p.Slabs))  // the last visit so far that writes a slab's gradient
	added := make([][]source, len(last)) // who has, since the last sum
	e.final, e.rounded = make([][]int, len(e.visits)), make([][]int, len(e.visits))
	for i, u := range e.visits {
		for _, k := range e.trainedBy(u) {
			if e.c.ShardGradients && slices.Contains(added[k], source{u.device, u.block}) {
				e.rounded[last[k]] = append(e.rounded[last[k]], k)
				added[k] = added[k][:0]
			}
			added[k], last[k] = append(added[k], source{u.device, u.block}), i
		}
	}
	for k, sources := range added {
		if len(sources) > 0 {
			e.final[last[k]] = append(e.final[last[k]], k)
		}
	}
}

// trainedBy lists the slabs whose gradient a visit writes.
func (e *emitter) trainedBy(u visit) []int {
	if u.phase != layout.ForwardBackward && u.phase != layout.Backward {
		return nil
	}
	var list []int
	for _, id := range e.l.Model.Blocks[u.block].Params {
		k := e.l.Slabs.Place[id].Slab
		if !e.l.Model.Params[id].Frozen && !slices.Contains(list, k) {
			list = append(list, k)
		}
	}
	return list
}

// sumDevices brings what devices have of a gradient to the slab's owner and adds it up, in
// the order of the devices. What others write next begins anew.
func (e *emitter) sumDevices(k int) {
	if e.groups != nil {
		e.sumGroups(k)
		return
	}
	owner := e.owner[k]
	s := plan.Instruction{Verb: plan.Reduce, Device: owner, Lane: plan.Compute, Block: e.l.Slabs.Owner[k], MicroBatch: -1, Slab: k}
	for d := range e.on {
		part := &e.on[d].slabs[k].gradient
		if *part < 0 {
			continue
		}
		id := *part
		if d != owner {
			id = e.moveIn(owner, id, e.l.Slabs.Owner[k], -1)
		}
		*part = -1
		s.Bindings = append(s.Bindings, plan.Binding{Region: plan.InGrad, Index: len(s.Bindings), Buffer: id})
	}
	e.on[owner].slabs[k].gradient = s.Bindings[0].Buffer
	for _, id := range e.l.Slabs.Params[k] { // the owner now has what any device has written
		written := false
		for d := range e.on {
			written = written || e.on[d].written[id]
			e.on[d].written[id] = false
		}
		e.on[owner].written[id] = written
	}
	if len(s.Bindings) > 1 {
		e.add(s)
	}
}

// squares emits a slab's part of the gradient norm: a sum of squares by param. Those of other
// devices are moved to the first.
func (e *emitter) squares(k int) error {
	owner, block := e.owner[k], e.l.Slabs.Owner[k]
	program, err := e.l.Program(block, layout.Squares, strategy.SaveAll, e.l.InSlab(block, k))
	if err != nil {
		return err
	}
	state := &e.on[owner].slabs[k]
	into := plan.Binding{Region: plan.OutPartial, Buffer: e.partials, Offset: 8 * e.l.Slabs.NormStart[k]}
	if owner != 0 {
		into = plan.Binding{Region: plan.OutPartial, Buffer: e.buffer("partials", plan.Workspace, owner, 8*int64(len(program.Graph.Outputs)))}
	}
	s := plan.Instruction{Verb: plan.Run, Device: owner, Lane: plan.Compute, Block: block, MicroBatch: -1, Program: e.programID(program), Bindings: []plan.Binding{
		{Region: plan.InGrad, Index: slices.Index(e.l.Slabs.OfBlock[block], k), Buffer: state.gradient}, into}}
	if program.Frame > 0 {
		scratch := e.buffer(e.p.Slabs[k].Name+" squares", plan.Workspace, owner, program.Frame)
		s.Bindings = append(s.Bindings, plan.Binding{Region: plan.InFrame, Buffer: scratch})
	}
	e.add(s)
	if owner != 0 {
		e.add(plan.Instruction{Verb: plan.Move, Device: 0, Lane: plan.In, Block: block, MicroBatch: -1, Src: into.Buffer, Dst: e.partials, Offset: 8 * e.l.Slabs.NormStart[k]})
	}
	if home := e.p.Slabs[k].Gradient; home >= 0 {
		e.moveOut(owner, state.gradient, home, block, -1)
		state.gradient = -1
	}
	return nil
}

// pauseGradients sends the gradients that a visit has added to home until the next round, where they have a home for that.
func (e *emitter) pauseGradients(i int, u visit) {
	if e.c.Rounds < 2 {
		return
	}
	for _, k := range e.trainedBy(u) {
		home, now := e.p.Slabs[k].Gradient, e.sumOf(k)
		if home < 0 || *now < 0 || u.device != e.owner[k] || slices.Contains(e.final[i], k) || e.addsNext(i, k) {
			continue
		}
		e.moveOut(u.device, *now, home, u.block, -1)
		*now, e.paused[k] = -1, true
	}
}

// resumeGradients brings the sums that a visit adds to back to their owners.
func (e *emitter) resumeGradients(u visit) {
	for _, k := range e.trainedBy(u) {
		if e.paused[k] {
			*e.sumOf(k), e.paused[k] = e.moveIn(e.owner[k], e.p.Slabs[k].Gradient, u.block, -1), false
		}
	}
}

// sumOf is where the sum so far of a slab's gradient is, on the slab's owner.
func (e *emitter) sumOf(k int) *int {
	if e.groups != nil {
		return &e.groups.total[k]
	}
	return &e.on[e.owner[k]].slabs[k].gradient
}

// addsNext says whether the next visit adds to the gradient of a slab too.
func (e *emitter) addsNext(i, k int) bool {
	return i+1 < len(e.visits) && slices.Contains(e.trainedBy(e.visits[i+1]), k)
}
