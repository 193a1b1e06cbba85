package executor

import (
	"fmt"

	"spillway/device"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
)

// launch is a kernel with its operands.
type launch struct {
	kernel device.Kernel
	launch device.Launch
}

// prepareRun resolves every operand of every node of the program.
func (e *Executor) prepareRun(s *plan.Instruction) (func(device.Queue) error, error) {
	prog := &e.plan.Programs[s.Program]
	kernels, err := e.programKernels(s.Program, s.Device)
	if err != nil {
		return nil, err
	}
	if j, ok := e.devices[s.Device].(device.Joiner); ok {
		return e.joinedRun(programOn{s.Program, s.Device}, j, kernels), nil
	}
	list := make([]launch, len(prog.Graph.Nodes))
	args := e.runArgs(s)
	for i, n := range prog.Graph.Nodes {
		k := kernels[i]
		list[i] = launch{k, device.Launch{Args: args, Buffers: make([]device.Buffer, 0, len(n.In)+len(n.Out))}}
		for _, v := range append(n.In[:len(n.In):len(n.In)], n.Out...) {
			b, err := e.operand(prog, s, v)
			if err != nil {
				return nil, fmt.Errorf("node %d of %s: %w", i, prog.Graph.Name, err)
			}
			list[i].launch.Buffers = append(list[i].launch.Buffers, b)
		}
		if w := k.Workspace(); w > 0 {
			frame, err := e.region(s, plan.Place{Region: plan.InFrame, Offset: prog.Workspace}, w)
			if err != nil {
				return nil, fmt.Errorf("node %d of %s: %w", i, prog.Graph.Name, err)
			}
			list[i].launch.Workspace = frame
		}
	}
	return func(q device.Queue) error { return e.issue(q, list) }, nil
}

// joinedRun runs a program as one kernel, the same in all its runs.
func (e *Executor) joinedRun(key programOn, j device.Joiner, kernels []device.Kernel) func(device.Queue) error {
	if issue, ok := e.joined[key]; ok {
		return issue
	}
	list := []launch{{kernel: j.Join(kernels)}}
	e.joined[key] = func(q device.Queue) error { return e.issue(q, list) }
	return e.joined[key]
}

func (e *Executor) issue(q device.Queue, list []launch) error {
	for i := range list {
		if err := q.Launch(list[i].kernel, &list[i].launch); err != nil {
			return err
		}
	}
	e.counters.Launches += int64(len(list))
	return nil
}

// runArgs are the numbers a run's random ops read; Iterate fills them.
func (e *Executor) runArgs(s *plan.Instruction) *op.Args {
	a := &op.Args{}
	e.runs = append(e.runs, runArgs{args: a, block: s.Block, micro: s.MicroBatch})
	return a
}

// operand finds where a value lies.
func (e *Executor) operand(prog *plan.Program, s *plan.Instruction, v graph.Value) (device.Buffer, error) {
	return e.region(s, prog.Places[v], prog.Graph.Type(v).Bytes())
}

// region is a part of what the step binds to a region.
func (e *Executor) region(s *plan.Instruction, at plan.Place, bytes int64) (device.Buffer, error) {
	bind, ok := s.Bound(at.Region, at.Index)
	if !ok {
		return device.Buffer{}, fmt.Errorf("nothing is bound to %s %d", at.Region, at.Index)
	}
	b := e.buffer(bind.Buffer)
	start := bind.Offset + at.Offset
	if start+bytes > b.Bytes {
		return device.Buffer{}, fmt.Errorf("%s %d has %d bytes, %d are used", at.Region, at.Index, b.Bytes, start+bytes)
	}
	b.Offset, b.Bytes = b.Offset+start, bytes
	return b, nil
}
