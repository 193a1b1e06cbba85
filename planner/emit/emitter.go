package emit

import (
	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// emitter writes the instructions of one plan.
type emitter struct {
	homes
	visits      []visit // of the iteration, in order
	prefetchers []*prefetcher
	updates     *updater
	programs    map[*layout.LaidProgram]int
	bindings    []plan.Binding // memory for those of instructions to come

	carry   *borders // what a block takes
	grad    *borders // the gradient of what a block takes
	saved   *borders // from forward to backward
	present []*int   // scratch of waitingBuffers
	cached  []int    // caches of the visit at hand that are stored elsewhere, on its device; nil for none

	groups  *groups // nil unless sums are canonical
	final   [][]int // by visit: slabs whose gradient it completes
	paused  []bool  // by slab: the sum so far of its gradient waits at home for the next round
	rounded [][]int // by visit: slabs whose owner gets what other devices have of its gradient
}

// begin makes homes and finds what comes when.
func (w *Writer) begin(c strategy.Choice) (*emitter, error) {
	l := w.l
	c = l.Allowed(c)
	e := &emitter{homes: homes{script: newScript(l, c)}, programs: map[*layout.LaidProgram]int{}, carry: newBorders(l), grad: newBorders(l), saved: newBorders(l)}
	if e.p.Buffers, e.p.Instructions = w.spare.buffers, w.spare.instructions; e.p.Instructions == nil {
		e.p.Buffers, e.p.Instructions = make([]plan.Buffer, 0, w.usual.buffers), make([]plan.Instruction, 0, w.usual.instructions)
	}
	w.spare = spareMemory{}
	if err := e.make(); err != nil {
		return nil, err
	}
	e.visits = sequencer{l, c}.sequence()
	e.prefetchers = newPrefetchers(e)
	if l.CanonicalSums() {
		e.groups = newGroups(len(e.p.Slabs))
	}
	e.paused = make([]bool, len(e.p.Slabs))
	e.countGradients()
	e.updates = newUpdater(e)
	return e, nil
}

// Draft is a plan whose buffers have no places yet.
type Draft struct {
	*pass.Memory
	Plan   *plan.Plan
	Choice strategy.Choice
}

// visit emits the runs of a visit, with the moves that feed it and what follows
// from its gradients.
func (e *emitter) visit(i int, u visit) error {
	for _, j := range u.micros {
		if batch := &e.on[u.device].batch[j]; *batch < 0 {
			*batch = e.moveIn(u.device, e.homes.batch[j], -1, j)
		}
	}
	e.fetchCaches(u)
	e.updates.updateDeferred(u)
	e.prefetchers[u.device].enter(u.turn)
	if e.l.Training() && !e.l.Goal.Optimizer.Clip && len(e.final[i]) > 0 { // an update follows
		e.updates.fetchAhead()
	}
	e.resumeGradients(u)
	if i+1 < len(e.visits) { // they come while this one runs
		e.resumeGradients(e.visits[i+1])
	}
	for _, k := range e.trainedBy(u) {
		if here := &e.on[u.device].slabs[k]; here.gradient < 0 && e.groups == nil {
			here.gradient = e.buffer(e.p.Slabs[k].Name+" gradients", plan.Gradient, u.device, e.l.GradBytes(k))
		}
	}
	for n, j := range u.micros {
		e.fetchInputs(u, j)
		e.prefetchActivations(i, n)
		if e.groups != nil {
			e.beginGroup(u)
		}
		if err := e.run(u, j); err != nil {
			return err
		}
		if e.groups != nil {
			e.endGroup(u)
		}
		e.offloadActivations(u, j)
	}
	e.returnCaches(u)
	e.pauseGradients(i, u)
	for _, k := range e.rounded[i] {
		e.sumDevices(k)
	}
	for _, k := range e.final[i] { // then the update, or with clipping its part of the norm
		e.sumDevices(k)
		if !e.l.Goal.Optimizer.Clip {
			e.updates.update(k)
		} else if err := e.squares(k); err != nil {
			return err
		}
	}
	e.prefetchers[u.device].leave(u.turn)
	return nil
}
