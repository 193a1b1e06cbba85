package planner

import (
	"spillway/plan"
)

// countGradients finds how many uses write the gradient of each slab, and which
// slabs' gradients are complete after which use.
func (e *emitter) countGradients() {
	e.left = make([]int, len(e.p.Slabs))
	last := map[int]int{}
	for i, u := range e.uses {
		for _, k := range e.trained(u) {
			e.left[k]++
			last[k] = i
		}
	}
	e.final = make([][]int, len(e.uses))
	for i, u := range e.uses {
		for _, k := range e.trained(u) {
			if last[k] == i {
				e.final[i] = append(e.final[i], k)
			}
		}
	}
}

// trained lists the slabs whose gradient a use writes.
func (e *emitter) trained(u use) []int {
	if u.phase != both && u.phase != backward {
		return nil
	}
	var list []int
	for _, id := range e.b.model.Blocks[u.block].Params {
		k := e.b.slabs.at[id].slab
		if !e.b.model.Params[id].Frozen && indexOf(list, k) < 0 {
			list = append(list, k)
		}
	}
	return list
}

// gradientDone emits what follows when all of a slab's gradient is there: the sum
// over devices, then the update, or with clipping its part of the norm.
func (e *emitter) gradientDone(k int) error {
	e.sumDevices(k)
	if !e.b.goal.Optimizer.Clip {
		e.update(k)
		return nil
	}
	return e.squares(k)
}

// sumDevices brings the parts of a gradient to the slab's owner and adds them in
// the order of the devices.
func (e *emitter) sumDevices(k int) {
	owner := e.owner[k]
	step := plan.Step{Verb: plan.Reduce, Device: owner, Lane: plan.Compute, Block: e.b.owner[k], Micro: -1, Slab: k}
	for d := range e.on {
		part := &e.on[d].slabs[k].gradient
		if *part < 0 {
			continue
		}
		id := *part
		if d != owner {
			id = e.moveIn(owner, id, e.b.owner[k], -1)
		}
		*part = -1
		step.Bind = append(step.Bind, plan.Bind{Region: plan.InGrad, Index: len(step.Bind), Buffer: id})
	}
	e.on[owner].slabs[k].gradient = step.Bind[0].Buffer
	if len(step.Bind) > 1 {
		e.add(step)
	}
}

// squares emits a slab's part of the gradient norm. Parts of other devices are
// moved to the first.
func (e *emitter) squares(k int) error {
	owner, block := e.owner[k], e.b.owner[k]
	l, err := e.b.program(block, squares, KeepAll, nil)
	if err != nil {
		return err
	}
	state := &e.on[owner].slabs[k]
	into := plan.Bind{Region: plan.OutPartial, Buffer: e.partials, Offset: 8 * e.b.partials[k]}
	if owner != 0 {
		into = plan.Bind{Region: plan.OutPartial, Buffer: e.buffer("partials", plan.Workspace, owner, 8*int64(len(l.Graph.Outputs)))}
	}
	step := plan.Step{Verb: plan.Run, Device: owner, Lane: plan.Compute, Block: block, Micro: -1, Program: e.programID(l), Bind: []plan.Bind{
		{Region: plan.InGrad, Index: indexOf(e.b.slabs.of[block], k), Buffer: state.gradient}, into}}
	if l.Frame > 0 {
		scratch := e.buffer(e.p.Slabs[k].Name+" squares", plan.Workspace, owner, l.Frame)
		step.Bind = append(step.Bind, plan.Bind{Region: plan.InFrame, Buffer: scratch})
	}
	e.add(step)
	if owner != 0 {
		e.add(plan.Step{Verb: plan.Move, Device: 0, Lane: plan.In, Block: block, Micro: -1, Src: into.Buffer, Dst: e.partials, Offset: 8 * e.b.partials[k]})
	}
	if home := e.p.Slabs[k].Gradient; home >= 0 {
		e.moveOut(owner, state.gradient, home, block, -1)
		state.gradient = -1
	}
	return nil
}

// fetchStates brings the state that the update after use i needs, and that of the
// uses ahead, so that it comes while this one computes and the one before is on
// its way out.
func (e *emitter) fetchStates(i int) {
	if e.b.goal.Optimizer == nil || e.b.goal.Optimizer.Clip {
		return
	}
	for n := i; n < len(e.final) && n <= i+e.c.Ahead*e.c.devices(); n++ {
		for _, k := range e.final[n] {
			if e.left[k] > 0 {
				e.fetchState(k)
			}
		}
	}
}

// fetchState brings master and moments of a slab to its owner.
func (e *emitter) fetchState(k int) {
	s, state := e.p.Slabs[k], &e.on[e.owner[k]].slabs[k]
	if state.master < 0 && s.Master >= 0 {
		state.master = e.moveIn(e.owner[k], s.Master, e.b.owner[k], -1)
	}
	if state.moment < 0 && s.Moment >= 0 {
		state.moment = e.moveIn(e.owner[k], s.Moment, e.b.owner[k], -1)
	}
}

// update emits the optimizer on a slab and sends what it changed home and to the
// replicas.
func (e *emitter) update(k int) {
	owner, block := e.owner[k], e.b.owner[k]
	s, state := e.p.Slabs[k], &e.on[owner].slabs[k]
	if state.weight < 0 {
		state.weight = e.moveIn(owner, s.Weight, block, -1)
	}
	step := plan.Step{Verb: plan.UpdateRun, Device: owner, Lane: plan.Compute, Block: block, Micro: -1, Slab: k, Bind: []plan.Bind{
		{Region: plan.InWeight, Buffer: state.weight}, {Region: plan.InGrad, Buffer: state.gradient}, {Region: plan.InClip, Buffer: e.on[owner].clip}}}
	for _, part := range []struct {
		region plan.Region
		buffer int
	}{{plan.InMaster, state.master}, {plan.InMoment, state.moment}} {
		if part.buffer >= 0 {
			step.Bind = append(step.Bind, plan.Bind{Region: part.region, Buffer: part.buffer})
		}
	}
	e.add(step)
	e.sendHome(k)
	for _, id := range s.Replicas {
		e.moveTo(e.p.Buffers[id].Arena, state.weight, id, block, -1)
	}
	state.gradient = -1
}

// sendHome moves what an update changed to its home where that is elsewhere.
// Weights may be used again before they are dropped.
func (e *emitter) sendHome(k int) {
	owner := e.owner[k]
	s, state := e.p.Slabs[k], &e.on[owner].slabs[k]
	for _, part := range []struct {
		now  *int
		home int
	}{{&state.master, s.Master}, {&state.moment, s.Moment}, {&state.weight, s.Weight}} {
		if *part.now < 0 || *part.now == part.home {
			continue
		}
		e.moveOut(owner, *part.now, part.home, e.b.owner[k], -1)
		if part.now != &state.weight {
			*part.now = -1
		}
	}
}

// clippedUpdates emits the second half of an iteration with clipping: the norm,
// then all updates, the state of the next slab on its way meanwhile.
func (e *emitter) clippedUpdates() {
	e.add(plan.Step{Verb: plan.Reduce, Lane: plan.Compute, Block: -1, Micro: -1, Bind: []plan.Bind{
		{Region: plan.OutPartial, Buffer: e.partials}, {Region: plan.InClip, Buffer: e.on[0].clip}}})
	for d := 1; d < len(e.on); d++ {
		e.moveTo(d, e.on[0].clip, e.on[d].clip, -1, -1)
	}
	var order []int
	for k := len(e.p.Slabs) - 1; k >= 0; k-- {
		if e.p.Slabs[k].Elements > 0 {
			order = append(order, k)
		}
	}
	fetched := 0
	for i, k := range order {
		for ; fetched < len(order) && fetched <= i+e.c.Ahead*e.c.devices(); fetched++ {
			e.fetchForUpdate(order[fetched])
		}
		e.update(k)
		if e.c.Streamed[k] {
			e.on[e.owner[k]].slabs[k].weight = -1
		}
	}
}

func (e *emitter) fetchForUpdate(k int) {
	owner := e.owner[k]
	s, state := e.p.Slabs[k], &e.on[owner].slabs[k]
	e.fetchState(k)
	if state.gradient < 0 {
		state.gradient = e.moveIn(owner, s.Gradient, e.b.owner[k], -1)
	}
	if state.weight < 0 {
		state.weight = e.moveIn(owner, s.Weight, e.b.owner[k], -1)
	}
}
