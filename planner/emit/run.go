package emit

import (
	"fmt"

	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// run emits one run of a block's program.
func (e *emitter) run(u visit, micro int) error {
	level, fresh := strategy.SaveAll, []bool(nil)
	if u.phase == layout.Forward || u.phase == layout.Backward {
		level = e.c.Level[u.block]
	}
	if e.l.Training() {
		fresh = e.fresh(u)
	}
	phase := u.phase
	if u.device == e.cpu {
		phase = layout.CPUForward
	}
	l, err := e.l.Program(u.block, phase, level, fresh)
	if err != nil {
		return err
	}
	s := plan.Instruction{Verb: plan.Run, Device: u.device, Lane: plan.Compute, Block: u.block, MicroBatch: micro, Program: e.programID(l)}
	if len(e.bindings) < len(l.Binds) { // those of many instructions are allocated at once
		e.bindings = make([]plan.Binding, max(1024, len(l.Binds)))
	}
	s.Bindings, e.bindings = e.bindings[:len(l.Binds):len(l.Binds)], e.bindings[len(l.Binds):]
	for i, need := range l.Binds {
		need.Buffer = e.bound(need, l.Bytes[i], l, u, micro)
		s.Bindings[i] = need
	}
	e.add(s)
	if out, ok := s.Bound(plan.OutResult, 0); ok {
		e.moveOut(u.device, out.Buffer, e.result[micro], u.block, micro)
	}
	return nil
}

// fresh marks, by param of the block, those whose gradient is written for the first time in
// this iteration on this device: later ones are added to it.
func (e *emitter) fresh(u visit) []bool {
	params := e.l.Model.Blocks[u.block].Params
	fresh := make([]bool, len(params))
	if u.phase == layout.Forward {
		return fresh
	}
	written := e.on[u.device].written
	for i, id := range params {
		fresh[i] = !written[id]
	}
	for _, id := range params {
		written[id] = true
	}
	return fresh
}

// programID is the number of a program in the plan.
func (e *emitter) programID(l *layout.LaidProgram) int {
	id, ok := e.programs[l]
	if !ok {
		id = len(e.p.Programs)
		e.programs[l] = id
		e.p.Programs = append(e.p.Programs, l.Program)
	}
	return id
}

// bound is the buffer that a run gets for one of its bindings, of which it uses so many
// bytes. Buffers that the run writes first are made here.
func (e *emitter) bound(need plan.Binding, bytes int64, l *layout.LaidProgram, u visit, micro int) int {
	names, here := &e.l.Names[u.block], &e.on[u.device]
	switch need.Region {
	case plan.InFrame:
		return e.buffer(names.Frame, plan.Workspace, u.device, l.Frame)
	case plan.InWeight:
		return here.slabs[e.l.Slabs.OfBlock[u.block][need.Index]].weight
	case plan.InGrad:
		return here.slabs[e.l.Slabs.OfBlock[u.block][need.Index]].gradient
	case plan.InCarry:
		return *e.carry.at(u.block, need.Index, micro)
	case plan.OutCarry:
		return e.made(e.carry.at(u.block+1, need.Index, micro), u.device, names.Output, bytes)
	case plan.InGradOutput:
		return *e.grad.at(u.block+1, need.Index, micro)
	case plan.OutGradInput:
		return e.made(e.grad.at(u.block, need.Index, micro), u.device, names.InputGrad, bytes)
	case plan.InSaved:
		return e.made(e.saved.at(u.block, 0, micro), u.device, names.Saved, l.SavedBytes)
	case plan.InBatch:
		return here.batch[micro]
	case plan.InCache:
		if e.cached != nil {
			return e.cached[need.Index]
		}
		return e.caches[u.block][need.Index]
	case plan.InConst:
		return here.consts
	case plan.OutResult:
		return e.buffer(fmt.Sprintf("result %d", micro), plan.ResultData, u.device, bytes)
	}
	return -1
}

// made is a buffer that a run writes, made where it is not there yet.
func (e *emitter) made(id *int, dev int, name string, bytes int64) int {
	if *id < 0 {
		*id = e.buffer(name, plan.Activation, dev, bytes)
	}
	return *id
}
