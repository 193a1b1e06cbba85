package emit

import (
	"slices"

	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// countGradients finds which slabs' gradients are complete after which use, and with
// sharded gradients, after which uses every device's part of a round is there.
func (e *emitter) countGradients() {
	type source struct{ device, block int }
	last := make([]int, len(e.p.Slabs))  // the last use so far that writes a slab's gradient
	added := make([][]source, len(last)) // who has, since the last sum
	e.final, e.rounded = make([][]int, len(e.uses)), make([][]int, len(e.uses))
	for i, u := range e.uses {
		for _, k := range e.trained(u) {
			if e.c.ShardGradients && slices.Contains(added[k], source{u.device, u.block}) {
				e.rounded[last[k]] = append(e.rounded[last[k]], k)
				added[k] = added[k][:0]
			}
			added[k], last[k] = append(added[k], source{u.device, u.block}), i
		}
	}
	for k, some := range added {
		if len(some) > 0 {
			e.final[last[k]] = append(e.final[last[k]], k)
		}
	}
}

// trained lists the slabs whose gradient a use writes.
func (e *emitter) trained(u use) []int {
	if u.phase != layout.ForwardBackward && u.phase != layout.Backward {
		return nil
	}
	var list []int
	for _, id := range e.l.Model.Blocks[u.block].Params {
		k := e.l.Slabs.Place[id].Slab
		if !e.l.Model.Params[id].Frozen && slices.Index(list, k) < 0 {
			list = append(list, k)
		}
	}
	return list
}

// gradientDone emits what follows when all of a slab's gradient is there: the sum
// over devices, then the update, or with clipping its part of the norm.
func (e *emitter) gradientDone(k int) error {
	e.sumDevices(k)
	if !e.l.Goal.Optimizer.Clip {
		e.update(k)
		return nil
	}
	return e.squares(k)
}

// sumDevices brings the parts of a gradient to the slab's owner and adds them to its
// own, in the order of the devices. What others write next begins anew.
func (e *emitter) sumDevices(k int) {
	owner := e.owner[k]
	step := plan.Instruction{Verb: plan.Reduce, Device: owner, Lane: plan.Compute, Block: e.l.Owner[k], MicroBatch: -1, Slab: k}
	for d := range e.on {
		part := &e.on[d].slabs[k].gradient
		if *part < 0 {
			continue
		}
		id := *part
		if d != owner {
			id = e.moveIn(owner, id, e.l.Owner[k], -1)
		}
		*part = -1
		step.Bindings = append(step.Bindings, plan.Binding{Region: plan.InGrad, Index: len(step.Bindings), Buffer: id})
	}
	e.on[owner].slabs[k].gradient = step.Bindings[0].Buffer
	if len(e.on) > 1 {
		e.ownerHasGradient(k)
	}
	if len(step.Bindings) > 1 {
		e.add(step)
	}
}

// handOver notes that the owner of a slab now has what any device has written of its
// gradient, and others have nothing.
func (e *emitter) ownerHasGradient(k int) {
	for _, id := range e.l.Slabs.Params[k] {
		some := false
		for d := range e.on {
			some = some || e.on[d].written[id]
			e.on[d].written[id] = false
		}
		e.on[e.owner[k]].written[id] = some
	}
}

// squares emits a slab's part of the gradient norm. Parts of other devices are
// moved to the first.
func (e *emitter) squares(k int) error {
	owner, block := e.owner[k], e.l.Owner[k]
	l, err := e.l.Program(block, layout.Squares, strategy.SaveAll, e.l.InSlab(block, k))
	if err != nil {
		return err
	}
	state := &e.on[owner].slabs[k]
	into := plan.Binding{Region: plan.OutPartial, Buffer: e.partials, Offset: 8 * e.l.NormStart[k]}
	if owner != 0 {
		into = plan.Binding{Region: plan.OutPartial, Buffer: e.buffer("partials", plan.Workspace, owner, 8*int64(len(l.Graph.Outputs)))}
	}
	step := plan.Instruction{Verb: plan.Run, Device: owner, Lane: plan.Compute, Block: block, MicroBatch: -1, Program: e.programID(l), Bindings: []plan.Binding{
		{Region: plan.InGrad, Index: slices.Index(e.l.Slabs.OfBlock[block], k), Buffer: state.gradient}, into}}
	if l.Frame > 0 {
		scratch := e.buffer(e.p.Slabs[k].Name+" squares", plan.Workspace, owner, l.Frame)
		step.Bindings = append(step.Bindings, plan.Binding{Region: plan.InFrame, Buffer: scratch})
	}
	e.add(step)
	if owner != 0 {
		e.add(plan.Instruction{Verb: plan.Move, Device: 0, Lane: plan.In, Block: block, MicroBatch: -1, Src: into.Buffer, Dst: e.partials, Offset: 8 * e.l.NormStart[k]})
	}
	if home := e.p.Slabs[k].Gradient; home >= 0 {
		e.moveOut(owner, state.gradient, home, block, -1)
		state.gradient = -1
	}
	return nil
}

// turn is the update of one piece.
type updateTurn struct{ slab, piece int }

// queueUpdates lists the updates of an iteration in the order they come.
func (e *emitter) queueUpdates() {
	e.queueDeferred()
	if e.l.Goal.Optimizer.Clip {
		for k := len(e.p.Slabs) - 1; k >= 0; k-- {
			if !e.owed[k] {
				e.queueUpdate(k)
			}
		}
		return
	}
	for _, final := range e.final {
		for _, k := range final {
			e.queueUpdate(k)
		}
	}
}

func (e *emitter) queueUpdate(k int) {
	for i := range e.p.Slabs[k].Pieces {
		e.updateTurns = append(e.updateTurns, updateTurn{k, i})
	}
}

// fetchAhead brings what the next updates need, so that it comes while something
// else computes and what was updated before is on its way out.
func (e *emitter) fetchAhead() {
	end := len(e.updateTurns)
	if e.updated < e.deferredTurns { // of others there are no gradients yet
		end = e.deferredTurns
	}
	for ; e.fetched < end && e.fetched <= e.updated+e.c.PrefetchStates*e.c.DeviceCount(); e.fetched++ {
		t := e.updateTurns[e.fetched]
		e.fetchPiece(t)
		if e.l.Goal.Optimizer.Clip && !e.c.ByCPU(t.slab) {
			e.fetchSlab(t.slab)
		}
	}
}

// fetchStates brings the state of the update that follows use i, and more ahead.
func (e *emitter) fetchStates(i int) {
	if e.l.Goal.Optimizer != nil && !e.l.Goal.Optimizer.Clip && len(e.final[i]) > 0 {
		e.fetchAhead()
	}
}

// fetchPiece brings master and moments of a piece to its owner.
func (e *emitter) fetchPiece(t updateTurn) {
	p, owner := e.p.Slabs[t.slab].Pieces[t.piece], e.owner[t.slab]
	state := &e.on[owner].slabs[t.slab].pieces[t.piece]
	if state.master < 0 && p.Master >= 0 {
		state.master = e.moveIn(owner, p.Master, e.l.Owner[t.slab], -1)
	}
	if state.state < 0 && p.State >= 0 {
		state.state = e.moveIn(owner, p.State, e.l.Owner[t.slab], -1)
	}
}

// fetchSlab brings gradient and weights of a slab back to its owner. Weights that are
// updated late come with the window.
func (e *emitter) fetchSlab(k int) {
	owner := e.owner[k]
	s, state := e.p.Slabs[k], &e.on[owner].slabs[k]
	if state.gradient < 0 {
		state.gradient = e.moveIn(owner, s.Gradient, e.l.Owner[k], -1)
	}
	if !e.owed[k] {
		e.prefetchers[owner].open(k)
	}
}

// update emits the optimizer on a slab, piece by piece, and sends what it changed
// home and to the replicas: the states of its last pieces behind its weights where those
// are held back.
func (e *emitter) update(k int) {
	if e.c.ByCPU(k) {
		e.cpuUpdate(k)
		return
	}
	owner, block := e.owner[k], e.l.Owner[k]
	s, state := e.p.Slabs[k], &e.on[owner].slabs[k]
	e.prefetchers[owner].open(k)
	sent, held := e.updated, e.heldBack(k)
	for range s.Pieces {
		e.fetchAhead()
		e.add(e.updateInstruction(e.updateTurns[e.updated], owner, state.weight, state.gradient, e.on[owner].clip))
		e.updated++
		for ; sent < e.updated-held; sent++ {
			e.sendStates(e.updateTurns[sent])
		}
	}
	if state.weight != s.Weight {
		e.moveOut(owner, state.weight, s.Weight, block, -1)
	}
	for ; sent < e.updated; sent++ {
		e.sendStates(e.updateTurns[sent])
	}
	for _, id := range s.Replicas {
		e.moveTo(e.p.Buffers[id].Arena, state.weight, id, block, -1)
	}
	state.gradient = -1
}

// sendStates sends what the optimizer keeps of a piece home.
func (e *emitter) sendStates(t updateTurn) {
	owner, home := e.owner[t.slab], e.p.Slabs[t.slab].Pieces[t.piece]
	state := &e.on[owner].slabs[t.slab].pieces[t.piece]
	for _, p := range []struct {
		now  *int
		home int
	}{{&state.master, home.Master}, {&state.state, home.State}} {
		if *p.now >= 0 && *p.now != p.home {
			e.moveOut(owner, *p.now, p.home, e.l.Owner[t.slab], -1)
			*p.now = -1
		}
	}
}

// leastHeldBack is how many pieces' states may wait for the weights of their slab, however
// few are fetched ahead: about as many as the link to the host is behind the link from it,
// since it has the states of the slab before to carry.
const leastHeldBack = 2

// heldBack is how many pieces' states of a slab go home behind its weights. The last
// slab that an iteration updates is mostly the first that the next one uses, and what is
// behind its weights trails. They wait in the room that runs had for their inner values.
func (e *emitter) heldBack(k int) (held int) {
	s := &e.p.Slabs[k]
	if e.deferring || e.disk >= 0 || e.updateTurns[len(e.updateTurns)-1].slab != k || e.on[e.owner[k]].slabs[k].weight == s.Weight {
		return 0
	}
	room := int64(0)
	for l := range e.programs {
		room = max(room, l.Frame)
	}
	for held < max(leastHeldBack, e.c.PrefetchStates-2) { // two are on their way at most
		if room -= e.stateBytes(s.Pieces[0]); room < 0 {
			break
		}
		held++
	}
	return held
}

// stateBytes is what the optimizer keeps of a piece.
func (e *emitter) stateBytes(p plan.Piece) (bytes int64) {
	for _, id := range []int{p.Master, p.State} {
		if id >= 0 {
			bytes += e.p.Buffers[id].Bytes
		}
	}
	return bytes
}

// updateStep is the update of a piece by a device, with the state that is at hand.
func (e *emitter) updateInstruction(t updateTurn, dev, weight, gradient, clip int) plan.Instruction {
	state := e.on[e.owner[t.slab]].slabs[t.slab].pieces[t.piece]
	step := plan.Instruction{Verb: plan.Update, Device: dev, Lane: plan.Compute, Block: e.l.Owner[t.slab], MicroBatch: -1, Slab: t.slab, Piece: t.piece, Bindings: []plan.Binding{
		{Region: plan.InWeight, Buffer: weight}, {Region: plan.InGrad, Buffer: gradient}, {Region: plan.InClip, Buffer: clip}}}
	if state.master >= 0 {
		step.Bindings = append(step.Bindings, plan.Binding{Region: plan.InMaster, Buffer: state.master})
	}
	if state.state >= 0 {
		step.Bindings = append(step.Bindings, plan.Binding{Region: plan.InState, Buffer: state.state})
	}
	if state.scratch > 0 && dev != e.cpu {
		step.Bindings = append(step.Bindings, plan.Binding{Region: plan.InFrame, Buffer: e.buffer(e.p.Slabs[t.slab].Name+" update", plan.Workspace, dev, state.scratch)})
	}
	return step
}

// clippedUpdates emits the second half of an iteration with clipping: the norm,
// then all updates.
func (e *emitter) clippedUpdates() {
	e.add(plan.Instruction{Verb: plan.Reduce, Lane: plan.Compute, Block: -1, MicroBatch: -1, Bindings: []plan.Binding{
		{Region: plan.OutPartial, Buffer: e.partials}, {Region: plan.InClip, Buffer: e.on[0].clip}}})
	for d := 1; d < len(e.on); d++ {
		e.moveTo(d, e.on[0].clip, e.on[d].clip, -1, -1)
	}
	if e.cpu >= 0 {
		e.moveOut(0, e.on[0].clip, e.cpuClip, -1, -1)
	}
	for e.updated < len(e.updateTurns) {
		k := e.updateTurns[e.updated].slab
		e.fetchAhead()
		e.update(k)
		if e.c.Streamed[k] && !e.c.ByCPU(k) {
			e.on[e.owner[k]].slabs[k].weight = -1
		}
	}
}
