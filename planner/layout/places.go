package layout

import (
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
	"spillway/planner/goal"
	"spillway/planner/pass"
	"spillway/spec"
)

// programLayout gives every value of a program a place. Inputs and outputs have places by
// role; the rest lives in the frame, packed by lifetime.
type programLayout struct {
	slabs        *Slabs
	block        spec.Block
	index        int             // of the block
	update       *plan.Optimizer // nil where nothing is trained
	parts        map[string]plan.BatchTensor
	consts       map[string]plan.Const
	savedOffsets []int64 // of the values handed from forward to backward, by index of their port
}

// lay gives the values of a program places. Kernels say how much scratch memory they need.
func (l *programLayout) lay(p *graph.Program, kernels goal.Kernels, align int64) (plan.Program, error) {
	p = separate(p)
	laid := plan.Program{Graph: p, Places: make([]plan.Place, len(p.Types))}
	for _, in := range p.Inputs {
		place, err := l.input(in)
		if err != nil {
			return laid, fmt.Errorf("program %s: %w", p.Name, err)
		}
		laid.Places[in.Value] = place
	}
	for _, out := range p.Outputs {
		place, err := l.output(out)
		if err != nil {
			return laid, fmt.Errorf("program %s: %w", p.Name, err)
		}
		laid.Places[out.Value] = place
	}
	laid.Workspace = pass.AlignUp(placeInner(p, laid.Places, align), align)
	laid.Frame = laid.Workspace
	for _, n := range p.Nodes { // the largest scratch memory that a kernel asks for
		k, err := kernels.Kernel(p.Call(n))
		if err != nil {
			return laid, fmt.Errorf("program %s, from %s: %w", p.Name, n.At, err)
		}
		laid.Frame = max(laid.Frame, laid.Workspace+k.Workspace())
	}
	return laid, nil
}

func (l *programLayout) input(in graph.Port) (plan.Place, error) {
	switch in.Role {
	case graph.Carry:
		return plan.Place{Region: plan.InCarry, Index: in.Index}, nil
	case graph.GradCarry:
		return plan.Place{Region: plan.InGradOutput, Index: in.Index}, nil
	case graph.Param:
		at := l.slabs.Place[l.block.Params[in.Index]]
		return plan.Place{Region: plan.InWeight, Index: slices.Index(l.slabs.OfBlock[l.index], at.Slab), Offset: l.slabs.List[at.Slab].Params[at.index].Offset}, nil
	case graph.GradParam:
		return l.gradient(in)
	case graph.Saved:
		return plan.Place{Region: plan.InSaved, Offset: l.savedOffsets[in.Index]}, nil
	case graph.Batch:
		part, ok := l.parts[in.Name]
		if !ok {
			return plan.Place{}, fmt.Errorf("batches have no part %q", in.Name)
		}
		return plan.Place{Region: plan.InBatch, Offset: part.Offset}, nil
	case graph.Cache:
		return plan.Place{Region: plan.InCache, Index: in.Index}, nil
	case graph.Const:
		return plan.Place{Region: plan.InConst, Offset: l.consts[constKey(in)].Offset}, nil
	}
	return plan.Place{}, fmt.Errorf("an input cannot be a %s", in.Role)
}

func (l *programLayout) output(out graph.Port) (plan.Place, error) {
	switch out.Role {
	case graph.Carry:
		return plan.Place{Region: plan.OutCarry, Index: out.Index}, nil
	case graph.GradCarry:
		return plan.Place{Region: plan.OutGradInput, Index: out.Index}, nil
	case graph.GradParam:
		return l.gradient(out)
	case graph.Saved:
		return plan.Place{Region: plan.InSaved, Offset: l.savedOffsets[out.Index]}, nil
	case graph.Cache:
		return plan.Place{Region: plan.InCache, Index: out.Index}, nil
	case graph.Result:
		return plan.Place{Region: plan.OutResult, Index: out.Index}, nil
	case graph.Partial:
		return plan.Place{Region: plan.OutPartial, Offset: 8 * int64(out.Index)}, nil
	}
	return plan.Place{}, fmt.Errorf("an output cannot be a %s", out.Role)
}

func (l *programLayout) gradient(port graph.Port) (plan.Place, error) {
	at := l.slabs.Place[l.block.Params[port.Index]]
	q := l.slabs.List[at.Slab].Params[at.index]
	if q.Frozen() {
		return plan.Place{}, fmt.Errorf("param %s is frozen and has no gradient", q.Name)
	}
	return plan.Place{Region: plan.InGrad, Index: slices.Index(l.slabs.OfBlock[l.index], at.Slab), Offset: l.update.GradTypeOf(q.Type.DType).Bytes(q.Element)}, nil
}

// constKey is equal for equal constants: those of one name may differ between programs.
func constKey(p graph.Port) string { return p.Name + "\x00" + string(p.Data) }

// separate copies outputs that are inputs too, or outputs twice, so that every value has one
// place.
func separate(p *graph.Program) *graph.Program {
	taken := map[graph.Value]bool{}
	for _, in := range p.Inputs {
		taken[in.Value] = true
	}
	q := *p
	q.Outputs = append([]graph.Port(nil), p.Outputs...)
	for i, out := range q.Outputs {
		if !taken[out.Value] {
			taken[out.Value] = true
			continue
		}
		q.Types = append(q.Types[:len(q.Types):len(q.Types)], q.Types[out.Value])
		v := graph.Value(len(q.Types) - 1)
		copied := graph.Node{Kind: op.Copy, In: []graph.Value{out.Value}, Out: []graph.Value{v}}
		if t := q.Types[v]; t.DType == dtype.I32 { // real numbers are copied by a kernel of their own
			copied.Kind, copied.Attr = op.Reshape, op.Attr{Shape: t.Shape}
		}
		q.Nodes = append(q.Nodes[:len(q.Nodes):len(q.Nodes)], copied)
		q.Outputs[i].Value = v
	}
	return &q
}

// placeInner packs the values without a place into the frame and returns its size.
func placeInner(p *graph.Program, places []plan.Place, align int64) int64 {
	spans := make([]*pass.Span, len(p.Types))
	var all []*pass.Span
	last := lastReads(p)
	takeOutputs(p, places, last)
	for i, n := range p.Nodes {
		for _, v := range n.In {
			if spans[v] != nil {
				spans[v].To = i
			}
		}
		for k, v := range n.Out {
			if places[v].Region != "" {
				continue
			}
			if over := overwritten(p, n, k); over != 0 && spans[over] != nil && last[over] == i {
				spans[v] = spans[over]
				continue
			}
			spans[v] = &pass.Span{Bytes: p.Types[v].Bytes(), From: i, To: i}
			all = append(all, spans[v])
		}
	}
	total := pass.Pack(all, align)
	for v, s := range spans {
		if s != nil {
			places[v] = plan.Place{Region: plan.InFrame, Offset: s.Offset}
		}
	}
	return total
}

// lastReads is the last node that reads each value.
func lastReads(p *graph.Program) []int {
	last := make([]int, len(p.Types))
	for i, n := range p.Nodes {
		for _, v := range n.In {
			last[v] = i
		}
	}
	return last
}

// takeOutputs puts values that nothing but the node reads which makes an output to the place of that output, where
// it may lie on them. Nothing else is there before.
func takeOutputs(p *graph.Program, places []plan.Place, last []int) {
	made := make([]bool, len(p.Types))
	for i, n := range p.Nodes {
		for k, v := range n.Out {
			made[v] = true
			over := graph.Value(0)
			if places[v].Region == plan.OutGradInput || places[v].Region == plan.OutCarry {
				over = overwritten(p, n, k)
			}
			if over != 0 && made[over] && places[over].Region == "" && last[over] == i {
				places[over] = places[v]
			}
		}
	}
}

// overwritten is the operand of a node whose place an output may take, 0 for none.
func overwritten(p *graph.Program, n graph.Node, output int) graph.Value {
	for _, o := range p.Call(n).Overwrites() {
		v := n.In[o.Operand]
		if o.Output == output && p.Types[v].Equal(p.Types[n.Out[output]]) && !slices.Contains(n.In[:o.Operand], v) && !slices.Contains(n.In[o.Operand+1:], v) {
			return v
		}
	}
	return 0
}
