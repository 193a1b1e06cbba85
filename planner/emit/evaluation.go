package emit

import (
	"fmt"
	"slices"

	"spillway/graph"
	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/pass"
)

// WithEvaluation is a training plan with one more phase, which computes the results of an
// iteration without dropout and changes nothing. It is the instructions that results
// depend on, with programs that compute nothing else, so it needs no memory of its own.
// Updates are complete when a phase begins: weights come from home, also those that an
// iteration makes by a deferred update.
func WithEvaluation(p *plan.Plan, kernels goal.Kernels) (*plan.Plan, error) {
	q := *p
	q.Programs, q.Buffers, q.Arenas = slices.Clone(p.Programs), slices.Clone(p.Buffers), slices.Clone(p.Arenas)
	view := q
	view.Instructions = settled(p)
	if err := forwardOnly(&view, kernels); err != nil {
		return nil, fmt.Errorf("planning evaluations of %s: %w", p.Model, err)
	}
	view.Instructions = neededForResults(&view)
	enlargeFrames(&view)
	pass.AddFrees(&view, pass.Lifetimes(&view))
	pass.Order(&view)
	for i := range view.Instructions {
		s := &view.Instructions[i]
		s.CarriesOver, s.AfterPrevious = false, nil // a phase waits for all of its copies
	}
	q.Programs, q.Buffers, q.Arenas = view.Programs, view.Buffers, view.Arenas
	q.Phases = append(slices.Clone(p.Phases), plan.Phase{Name: plan.Evaluate, Instructions: view.Instructions, Captured: p.Captured && p.Launches()+view.Launches() <= plan.MaxCaptured})
	return &q, nil
}

// settled lists the instructions of a plan without those of deferred updates. Where such
// an update makes weights on a device, a copy of the weights at home takes its place.
func settled(p *plan.Plan) (list []plan.Instruction) {
	made := make([]bool, len(p.Buffers))
	for _, s := range p.Instructions {
		weight, _ := s.Bound(plan.InWeight, 0)
		switch {
		case s.Verb == plan.Free:
			continue
		case !s.Deferred:
		case s.Verb == plan.Move && p.Buffers[s.Src].Class == plan.Weight && !p.Buffers[s.Dst].Home:
			made[s.Dst] = true
		case s.Verb == plan.Update && !p.Buffers[weight.Buffer].Home && !made[weight.Buffer]:
			made[weight.Buffer] = true
			s = plan.Instruction{Verb: plan.Move, Device: s.Device, Lane: plan.In, Block: s.Block, MicroBatch: -1, Src: p.Slabs[s.Slab].Weight, Dst: weight.Buffer}
		default:
			continue
		}
		s.After, s.Deferred = nil, false
		list = append(list, fromHost(p, s))
	}
	return list
}

// forwardOnly gives runs programs that compute carries and results and nothing else, and
// removes runs that compute neither.
func forwardOnly(p *plan.Plan, kernels goal.Kernels) error {
	program := map[int]int{} // by program: the one to run instead, -1 for none
	list := p.Instructions[:0]
	for _, s := range p.Instructions {
		if s.Verb != plan.Run {
			list = append(list, s)
			continue
		}
		at, ok := program[s.Program]
		if !ok {
			at = -1
			g, err := forwardProgram(p.Programs[s.Program], kernels, p.Optimizer != nil && p.Optimizer.Outputs)
			if err != nil {
				return err
			}
			if len(g.Graph.Nodes) > 0 {
				at = len(p.Programs)
				p.Programs = append(p.Programs, g)
			}
			program[s.Program] = at
		}
		if s.Program = at; at < 0 {
			continue
		}
		s.Bindings = slices.DeleteFunc(slices.Clone(s.Bindings), func(b plan.Binding) bool {
			return b.Region != plan.InFrame && !slices.ContainsFunc(p.Programs[at].Places, func(to plan.Place) bool { return to.Region == b.Region && to.Index == b.Index })
		})
		list = append(list, s)
	}
	p.Instructions = list
	return nil
}

// forwardProgram is a program without what its carries and results do not depend on and
// without dropout, unless its results are outputs that a gradient is to be given for. Values stay where
// they are; one without nodes has neither.
func forwardProgram(of plan.Program, kernels goal.Kernels, dropout bool) (plan.Program, error) {
	g, touched := *of.Graph, make([]bool, len(of.Graph.Types))
	g.Name, g.Nodes = g.Name+" evaluation", nil
	for _, out := range g.Outputs {
		touched[out.Value] = out.Role == graph.Result || out.Role == graph.Carry
	}
	made := slices.Clone(touched)
	for _, n := range slices.Backward(of.Graph.Nodes) {
		if !slices.ContainsFunc(n.Out, func(v graph.Value) bool { return touched[v] }) {
			continue
		}
		for _, v := range n.In {
			touched[v] = true
		}
		for _, v := range n.Out {
			made[v] = true
		}
		if !dropout {
			n.Attr.Prob = 0
		}
		g.Nodes = append(g.Nodes, n)
	}
	slices.Reverse(g.Nodes)
	g.Inputs = slices.DeleteFunc(slices.Clone(g.Inputs), func(in graph.Port) bool { return !touched[in.Value] })
	g.Outputs = slices.DeleteFunc(slices.Clone(g.Outputs), func(out graph.Port) bool { return !made[out.Value] })
	of.Graph, of.Places = &g, slices.Clone(of.Places)
	for v := range of.Places {
		if !touched[v] && !made[v] {
			of.Places[v] = plan.Place{}
		}
	}
	for _, n := range g.Nodes { // another kernel than with dropout may need more
		k, err := kernels.Kernel(g.Call(n))
		if err != nil {
			return of, fmt.Errorf("program %s, from %s: %w", g.Name, n.At, err)
		}
		of.Frame = max(of.Frame, of.Workspace+k.Workspace())
	}
	return of, nil
}

// neededForResults lists the instructions on which results depend, walking backwards.
// What homes hold is there already.
func neededForResults(p *plan.Plan) (list []plan.Instruction) {
	wanted := make([]bool, len(p.Buffers))
	for id, b := range p.Buffers {
		wanted[id] = b.Class == plan.ResultData
	}
	accesses := p.Accesses()
	for i, s := range slices.Backward(p.Instructions) {
		if !slices.ContainsFunc(accesses[i], func(a plan.Access) bool { return a.Write && wanted[a.Buffer] }) {
			continue
		}
		for _, a := range accesses[i] {
			wanted[a.Buffer] = wanted[a.Buffer] || a.Read && !p.Buffers[a.Buffer].Home
		}
		list = append(list, s)
	}
	slices.Reverse(list)
	return list
}

// enlargeFrames gives runs whose kernels need more scratch memory than in training a frame
// in the lowest gap among what is alive then.
func enlargeFrames(p *plan.Plan) {
	uses := p.Uses()
	for i := range p.Instructions {
		s := &p.Instructions[i]
		at := slices.IndexFunc(s.Bindings, func(b plan.Binding) bool { return b.Region == plan.InFrame })
		if s.Verb != plan.Run || at < 0 || p.Buffers[s.Bindings[at].Buffer].Bytes >= p.Programs[s.Program].Frame {
			continue
		}
		frame := p.Buffers[s.Bindings[at].Buffer]
		frame.Bytes, frame.Offset = p.Programs[s.Program].Frame, 0
		var alive []plan.Buffer
		for id, b := range p.Buffers[:len(uses)] {
			if b.Arena == frame.Arena && id != s.Bindings[at].Buffer && (b.Home || uses[id].First <= i && i <= uses[id].Last) {
				alive = append(alive, b)
			}
		}
		slices.SortFunc(alive, func(a, b plan.Buffer) int { return int(a.Offset - b.Offset) })
		for _, b := range alive {
			if b.Offset < frame.Offset+frame.Bytes {
				frame.Offset = max(frame.Offset, pass.AlignUp(b.Offset+b.Bytes, goal.Alignment))
			}
		}
		arena := &p.Arenas[frame.Arena]
		arena.Bytes = max(arena.Bytes, frame.Offset+frame.Bytes)
		s.Bindings[at].Buffer = len(p.Buffers)
		p.Buffers = append(p.Buffers, frame)
	}
}
