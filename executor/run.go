package executor

import (
	"fmt"
	"slices"

	"spillway/device"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
)

// run prepares a launch for every node of a program, or of all as one kernel.
func (c *compiler) run(s *plan.Instruction) (func(device.Queue) error, error) {
	on := programOn{s.Program, s.Device}
	if j, ok := c.devices[s.Device].(device.Joiner); ok {
		if c.joined[on] == nil { // the same in all its runs
			k, err := c.joinedProgram(on, j)
			if err != nil {
				return nil, err
			}
			c.joined[on] = c.launches([]launch{{kernel: k}})
		}
		return c.joined[on], nil
	}
	kernels, err := c.programKernels(on)
	if err != nil {
		return nil, err
	}
	prog := &c.plan.Programs[s.Program]
	list := make([]launch, len(prog.Graph.Nodes))
	args := &op.Args{}
	c.out.args.runs = append(c.out.args.runs, runArgs{args, s.Block, uint64(max(s.MicroBatch, 0)) * uint64(c.plan.MicroBatchSize)})
	for i := range list {
		if list[i], err = c.nodeLaunch(prog, s, i, kernels[i], args); err != nil {
			return nil, fmt.Errorf("node %d of %s: %w", i, prog.Graph.Name, err)
		}
	}
	return c.launches(list), nil
}

// nodeLaunch finds where the operands of a node are.
func (c *compiler) nodeLaunch(prog *plan.Program, s *plan.Instruction, i int, k device.Kernel, args *op.Args) (l launch, err error) {
	n := prog.Graph.Nodes[i]
	l = launch{k, device.Launch{Args: args, Buffers: make([]device.Buffer, 0, len(n.In)+len(n.Out)), Label: label(prog.Graph, n)}}
	for _, v := range append(n.In[:len(n.In):len(n.In)], n.Out...) {
		b, err := c.region(s, prog.Places[v], prog.Graph.Type(v).Bytes())
		if err != nil {
			return l, err
		}
		l.launch.Buffers = append(l.launch.Buffers, b)
	}
	if w := k.Workspace(); w > 0 {
		l.launch.Workspace, err = c.region(s, plan.Place{Region: plan.InFrame, Offset: prog.Workspace}, w)
	}
	return l, err
}

// label says which op of the model reads ids, for the error of one that names nothing: its params, its block and its line.
func label(g *graph.Program, n graph.Node) string {
	if _, reads := g.Call(n).IDs(); !reads {
		return ""
	}
	text := string(n.Kind)
	for _, p := range graph.Ports(g.Inputs, graph.Param) {
		if slices.Contains(n.In, p.Value) {
			text += " of " + p.Name
		}
	}
	text += " in block " + g.Name
	if n.At != "" {
		text += ", " + n.At
	}
	return text
}

// programOn is a program on a device.
type programOn struct{ program, device int }

// programKernels prepares the kernels of a program once per device.
func (c *compiler) programKernels(on programOn) ([]device.Kernel, error) {
	if list, ok := c.kernels[on]; ok {
		return list, nil
	}
	g := c.plan.Programs[on.program].Graph
	list := make([]device.Kernel, len(g.Nodes))
	for i, n := range g.Nodes {
		k, err := c.devices[on.device].Kernel(g.Call(n))
		if err != nil {
			return nil, fmt.Errorf("node %d of %s: %w", i, g.Name, err)
		}
		list[i] = k
	}
	c.kernels[on] = list
	return list, nil
}
