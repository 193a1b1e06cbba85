package planner

import (
	"fmt"

	"spillway/plan"
)

// emit writes the plan of a choice: homes, then the steps of one iteration.
func (b *blueprint) emit(c Choice) (*plan.Plan, error) {
	c.Vertical = c.Vertical || b.training() && b.entangled()
	e := &emitter{b: b, c: c, programs: map[*laid]int{}}
	e.start()
	e.homes()
	uses := e.uses()
	e.weights = newWindow(e, uses)
	e.countGradients(uses)
	e.runs = runsOf(uses)
	for i, u := range uses {
		if err := e.use(i, u); err != nil {
			return nil, err
		}
	}
	if b.training() && b.goal.Optimizer.Clip {
		e.clippedUpdates()
	}
	return e.finish(), nil
}

// emitter writes one plan. Buffers get their offsets at the end.
type emitter struct {
	b        *blueprint
	c        Choice
	p        *plan.Plan
	programs map[*laid]int
	weights  *window
	runs     []run // of the iteration, in order
	next     int   // the run that comes next

	device, host int // arenas
	consts       int // buffers
	clip         int
	partials     int

	batch   []int        // by micro: on the device
	result  []int        // by micro: on the host
	carry   map[at]int   // what a block takes
	grad    map[at]int   // the gradient of what a block takes
	kept    map[at]int   // from forward to backward
	slabs   []slabState  // by slab
	written map[int]bool // params whose gradient has been written
	left    []int        // by slab: uses that still add to its gradient
	final   [][]int      // by use: slabs whose gradient it completes
}

// at names a value of a block's border: which block, carry and micro-batch.
type at struct{ block, index, micro int }

// slabState is what of a slab is on the device now.
type slabState struct {
	weight, gradient, master, moment int // buffers, -1 for none
}

// run is one micro-batch's visit of a block.
type run struct {
	use
	micro int
}

func runsOf(uses []use) []run {
	var list []run
	for _, u := range uses {
		for _, j := range u.micros {
			list = append(list, run{u, j})
		}
	}
	return list
}

// use is one visit of a block by some micro-batches.
type use struct {
	phase  phase
	block  int
	micros []int
}

func (e *emitter) start() {
	b := e.b
	e.p = &plan.Plan{Version: plan.Version, Model: b.model.Name, Task: string(b.model.Config.Task),
		Rows: b.model.Config.Rows, Seq: b.model.Config.Seq, Micros: b.goal.Micros,
		Devices: []plan.Device{{Name: b.site.Device, Budget: b.site.Budget}},
		Slabs:   append([]plan.Slab(nil), b.slabs.list...), Parts: b.parts, Consts: b.consts}
	tier := plan.OnHost
	if b.site.HostPinned {
		tier = plan.Pinned
	}
	e.p.Arenas = []plan.Arena{{Name: b.site.Device, Tier: plan.OnDevice}, {Name: "host", Tier: tier}}
	e.device, e.host = 0, 1
	if o := b.goal.Optimizer; o != nil {
		e.p.Update = &plan.Update{Rule: o.Rule, Attr: o.Attr, Moments: o.Moments, Grad: b.goal.Grad, Clip: o.Clip}
		if b.goal.Master {
			e.p.Update.Attr.To = b.model.Config.DType
		}
	}
	e.carry, e.grad, e.kept, e.written = map[at]int{}, map[at]int{}, map[at]int{}, map[int]bool{}
}

// homes makes the buffers that keep their contents between iterations.
func (e *emitter) homes() {
	b := e.b
	e.consts, e.clip, e.partials = -1, -1, -1
	if b.constBytes > 0 {
		e.consts = e.home("constants", plan.Constant, e.device, b.constBytes)
	}
	if b.training() {
		e.clip = e.home("clip", plan.Workspace, e.device, 8)
		if b.goal.Optimizer.Clip {
			e.partials = e.buffer("partials", plan.Workspace, e.device, 8*b.partialLen)
		}
	}
	e.batch = make([]int, b.goal.Micros)
	e.result = make([]int, b.goal.Micros)
	for j := range e.batch {
		e.batch[j] = -1
		e.home(fmt.Sprintf("batch %d", j), plan.BatchData, e.host, b.batchBytes)
		e.result[j] = e.home(fmt.Sprintf("result %d", j), plan.ResultData, e.host, b.resultBytes())
	}
	e.slabs = make([]slabState, len(e.p.Slabs))
	for k := range e.p.Slabs {
		e.slabHomes(k)
	}
}

func (b *blueprint) resultBytes() int64 {
	p := b.model.Program(len(b.model.Blocks) - 1)
	return p.Type(p.Outputs[0].Value).Bytes()
}

func (e *emitter) slabHomes(k int) {
	s, state := &e.p.Slabs[k], slabState{-1, -1, -1, -1}
	s.Weight = e.home(s.Name+" weights", plan.Weight, e.restsAt(e.c.Streamed[k]), s.WeightBytes)
	if !e.c.Streamed[k] {
		state.weight = s.Weight
	}
	if e.b.training() && s.Elements > 0 {
		arena := e.restsAt(e.c.Offloaded[k])
		if e.b.goal.Master {
			s.Master = e.home(s.Name+" master", plan.Master, arena, 4*s.Elements)
		}
		if n := int64(len(e.b.goal.Optimizer.Moments)); n > 0 {
			s.Moment = e.home(s.Name+" moments", plan.Moment, arena, 4*n*s.Elements)
		}
		if !e.c.Offloaded[k] {
			state.master, state.moment = s.Master, s.Moment
		}
		if e.c.Offloaded[k] && e.b.goal.Optimizer.Clip {
			s.Gradient = e.home(s.Name+" gradients", plan.Gradient, e.host, e.gradBytes(k))
		}
	}
	e.slabs[k] = state
}

func (e *emitter) restsAt(host bool) int {
	if host {
		return e.host
	}
	return e.device
}

func (e *emitter) gradBytes(k int) int64 { return e.b.goal.Grad.Bytes(e.p.Slabs[k].Elements) }

func (e *emitter) home(name string, class plan.Class, arena int, bytes int64) int {
	id := e.buffer(name, class, arena, bytes)
	e.p.Buffers[id].Home = true
	return id
}

func (e *emitter) buffer(name string, class plan.Class, arena int, bytes int64) int {
	e.p.Buffers = append(e.p.Buffers, plan.Buffer{Name: name, Class: class, Arena: arena, Bytes: bytes})
	return len(e.p.Buffers) - 1
}

func (e *emitter) add(s plan.Step) { e.p.Steps = append(e.p.Steps, s) }

// moveIn makes a device copy of a home.
func (e *emitter) moveIn(home, block, micro int) int {
	h := e.p.Buffers[home]
	dst := e.buffer(h.Name, h.Class, e.device, h.Bytes)
	e.add(plan.Step{Verb: plan.Move, Lane: plan.In, Block: block, Micro: micro, Src: home, Dst: dst})
	return dst
}

func (e *emitter) moveOut(src, home, block, micro int) {
	e.add(plan.Step{Verb: plan.Move, Lane: plan.Out, Block: block, Micro: micro, Src: src, Dst: home})
}

// uses lists the visits of one iteration. Sums of gradients have one order whatever
// the choice: by block, and for a block by micro-batch. Where the first block shares
// a slab with a later one, its backward therefore waits for all micro-batches.
func (e *emitter) uses() []use {
	all := make([]int, e.b.goal.Micros)
	for j := range all {
		all[j] = j
	}
	groups := [][]int{all}
	if !e.c.Vertical {
		groups = nil
		for j := range e.b.goal.Micros {
			groups = append(groups, []int{j})
		}
	}
	var uses []use
	last, end := len(e.b.model.Blocks)-1, e.b.trained
	defers := e.b.training() && len(groups) > 1 && e.b.shares(end)
	for _, micros := range groups {
		if !e.b.training() {
			for i := range last + 1 {
				uses = append(uses, use{forwardOnly, i, micros})
			}
			continue
		}
		for i := range last {
			uses = append(uses, use{forward, i, micros})
		}
		uses = append(uses, use{both, last, micros})
		for i := last - 1; i > end || i == end && !defers; i-- {
			uses = append(uses, use{backward, i, micros})
		}
	}
	if defers {
		uses = append(uses, use{backward, end, all})
	}
	return uses
}

// countGradients finds how many uses write the gradient of each slab, and which
// slabs' gradients are complete after which use.
func (e *emitter) countGradients(uses []use) {
	e.left = make([]int, len(e.p.Slabs))
	last := map[int]int{}
	for i, u := range uses {
		for _, k := range e.trained(u) {
			e.left[k]++
			last[k] = i
		}
	}
	e.final = make([][]int, len(uses))
	for i, u := range uses {
		for _, k := range e.trained(u) {
			if last[k] == i {
				e.final[i] = append(e.final[i], k)
			}
		}
	}
}

// fetchStates brings the state that the update after use i needs, and that of the
// uses ahead, so that it comes while this one computes and the one before is on
// its way out.
func (e *emitter) fetchStates(i int) {
	if e.b.goal.Optimizer == nil || e.b.goal.Optimizer.Clip {
		return
	}
	for n := i; n < len(e.final) && n <= i+e.c.Ahead; n++ {
		for _, k := range e.final[n] {
			if e.left[k] > 0 {
				e.fetchState(k)
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

// use emits the runs of a visit, with the moves that feed it and what follows
// from its gradients.
func (e *emitter) use(i int, u use) error {
	for _, j := range u.micros {
		if e.batch[j] < 0 {
			e.batch[j] = e.moveIn(e.batchHome(j), -1, j)
		}
	}
	e.weights.enter(i)
	e.fetchStates(i)
	trained := e.trained(u)
	for _, k := range trained {
		e.left[k]--
		if e.slabs[k].gradient < 0 {
			e.slabs[k].gradient = e.buffer(e.p.Slabs[k].Name+" gradients", plan.Gradient, e.device, e.gradBytes(k))
		}
	}
	for _, j := range u.micros {
		e.unspillAhead()
		if err := e.run(u, j); err != nil {
			return err
		}
		e.spill(u, j)
		e.next++
	}
	for _, k := range e.final[i] {
		if err := e.gradientDone(k); err != nil {
			return err
		}
	}
	e.weights.leave(i)
	return nil
}

// batchHome is the host buffer of a micro-batch; results follow their batches.
func (e *emitter) batchHome(j int) int { return e.result[j] - 1 }

// run emits one run of a block's program.
func (e *emitter) run(u use, micro int) error {
	level, fresh := KeepAll, []bool(nil)
	if u.phase == forward || u.phase == backward {
		level = e.c.Level[u.block]
	}
	if e.b.training() {
		fresh = e.fresh(u)
	}
	l, err := e.b.program(u.block, u.phase, level, fresh)
	if err != nil {
		return err
	}
	step := plan.Step{Verb: plan.Run, Lane: plan.Compute, Block: u.block, Micro: micro, Program: e.programID(l)}
	for _, need := range l.binds {
		need.Buffer = e.bound(need, l, u, micro)
		step.Bind = append(step.Bind, need)
	}
	e.add(step)
	if out, ok := step.Bound(plan.OutResult, 0); ok {
		e.moveOut(out.Buffer, e.result[micro], u.block, micro)
	}
	return nil
}

// fresh tells, by param port of the block, whose gradient is written for the
// first time this iteration.
func (e *emitter) fresh(u use) []bool {
	params := e.b.model.Blocks[u.block].Params
	fresh := make([]bool, len(params))
	if u.phase == forward {
		return fresh
	}
	for i, id := range params {
		fresh[i] = !e.written[id]
	}
	for _, id := range params {
		e.written[id] = true
	}
	return fresh
}

func (e *emitter) programID(l *laid) int {
	id, ok := e.programs[l]
	if !ok {
		id = len(e.p.Programs)
		e.programs[l] = id
		e.p.Programs = append(e.p.Programs, l.Program)
	}
	return id
}

// bound is the buffer a region of a run gets. Buffers that the run makes are
// new.
func (e *emitter) bound(need plan.Bind, l *laid, u use, micro int) int {
	block := e.b.model.Blocks[u.block].Name
	switch need.Region {
	case plan.InFrame:
		return e.buffer(block+" frame", plan.Workspace, e.device, l.Frame)
	case plan.InWeight:
		return e.slabs[e.b.slabs.of[u.block][need.Index]].weight
	case plan.InGrad:
		return e.slabs[e.b.slabs.of[u.block][need.Index]].gradient
	case plan.InCarry:
		return e.carry[at{u.block, need.Index, micro}]
	case plan.OutCarry:
		return e.made(e.carry, at{u.block + 1, need.Index, micro}, block+" output", regionBytes(l, need))
	case plan.InGradOut:
		return e.grad[at{u.block + 1, need.Index, micro}]
	case plan.OutGradIn:
		return e.made(e.grad, at{u.block, need.Index, micro}, block+" input gradient", regionBytes(l, need))
	case plan.InKept:
		return e.made(e.kept, at{u.block, 0, micro}, block+" kept", l.kept)
	case plan.InBatch:
		return e.batch[micro]
	case plan.InConst:
		return e.consts
	case plan.OutResult:
		return e.buffer("result", plan.ResultData, e.device, regionBytes(l, need))
	}
	return -1
}

func (e *emitter) made(of map[at]int, key at, name string, bytes int64) int {
	id, ok := of[key]
	if !ok {
		id = e.buffer(name, plan.Activation, e.device, bytes)
		of[key] = id
	}
	return id
}

// regionBytes is the end of the last value in a region.
func regionBytes(l *laid, need plan.Bind) (end int64) {
	for v, place := range l.Places {
		if v > 0 && place.Region == need.Region && place.Index == need.Index {
			end = max(end, place.Offset+l.Graph.Types[v].Bytes())
		}
	}
	return end
}

// gradientDone emits what follows when all of a slab's gradient is there: the
// update, or with clipping its part of the norm.
func (e *emitter) gradientDone(k int) error {
	if !e.b.goal.Optimizer.Clip {
		e.update(k)
		return nil
	}
	owner := e.b.owner[k]
	l, err := e.b.program(owner, squares, KeepAll, nil)
	if err != nil {
		return err
	}
	step := plan.Step{Verb: plan.Run, Lane: plan.Compute, Block: owner, Micro: -1, Program: e.programID(l), Bind: []plan.Bind{
		{Region: plan.InGrad, Index: indexOf(e.b.slabs.of[owner], k), Buffer: e.slabs[k].gradient},
		{Region: plan.OutPartial, Buffer: e.partials, Offset: 8 * e.b.partials[k]},
	}}
	if l.Frame > 0 {
		scratch := e.buffer(e.p.Slabs[k].Name+" squares", plan.Workspace, e.device, l.Frame)
		step.Bind = append(step.Bind, plan.Bind{Region: plan.InFrame, Buffer: scratch})
	}
	e.add(step)
	if home := e.p.Slabs[k].Gradient; home >= 0 {
		e.moveOut(e.slabs[k].gradient, home, owner, -1)
		e.slabs[k].gradient = -1
	}
	return nil
}

// fetchState brings master and moments of a slab to the device.
func (e *emitter) fetchState(k int) {
	s := e.p.Slabs[k]
	if e.slabs[k].master < 0 && s.Master >= 0 {
		e.slabs[k].master = e.moveIn(s.Master, e.b.owner[k], -1)
	}
	if e.slabs[k].moment < 0 && s.Moment >= 0 {
		e.slabs[k].moment = e.moveIn(s.Moment, e.b.owner[k], -1)
	}
}

// update emits the optimizer on a slab and sends home what it changed.
func (e *emitter) update(k int) {
	s, state := e.p.Slabs[k], &e.slabs[k]
	step := plan.Step{Verb: plan.UpdateRun, Lane: plan.Compute, Block: e.b.owner[k], Micro: -1, Slab: k, Bind: []plan.Bind{
		{Region: plan.InWeight, Buffer: state.weight}, {Region: plan.InGrad, Buffer: state.gradient}, {Region: plan.InClip, Buffer: e.clip}}}
	for _, part := range []struct {
		region plan.Region
		buffer int
	}{{plan.InMaster, state.master}, {plan.InMoment, state.moment}} {
		if part.buffer >= 0 {
			step.Bind = append(step.Bind, plan.Bind{Region: part.region, Buffer: part.buffer})
		}
	}
	e.add(step)
	for _, part := range []struct {
		now  *int
		home int
	}{{&state.master, s.Master}, {&state.moment, s.Moment}, {&state.weight, s.Weight}} {
		if *part.now >= 0 && *part.now != part.home {
			e.moveOut(*part.now, part.home, e.b.owner[k], -1)
			if part.now != &state.weight {
				*part.now = -1
			}
		}
	}
	state.gradient = -1
}

// clippedUpdates emits the second half of an iteration with clipping: the norm,
// then all updates, the state of the next slab on its way meanwhile.
func (e *emitter) clippedUpdates() {
	e.add(plan.Step{Verb: plan.Reduce, Lane: plan.Compute, Block: -1, Micro: -1, Bind: []plan.Bind{
		{Region: plan.OutPartial, Buffer: e.partials}, {Region: plan.InClip, Buffer: e.clip}}})
	var order []int
	for k := len(e.p.Slabs) - 1; k >= 0; k-- {
		if e.p.Slabs[k].Elements > 0 {
			order = append(order, k)
		}
	}
	fetched := 0
	for i, k := range order {
		for ; fetched < len(order) && fetched <= i+e.c.Ahead; fetched++ {
			e.fetchForUpdate(order[fetched])
		}
		e.update(k)
		if e.c.Streamed[k] {
			e.slabs[k].weight = -1
		}
	}
}

func (e *emitter) fetchForUpdate(k int) {
	s, state := e.p.Slabs[k], &e.slabs[k]
	e.fetchState(k)
	if state.gradient < 0 {
		state.gradient = e.moveIn(s.Gradient, e.b.owner[k], -1)
	}
	if state.weight < 0 {
		state.weight = e.moveIn(s.Weight, e.b.owner[k], -1)
	}
}
