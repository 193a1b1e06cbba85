package layout

import (
	"fmt"
	"slices"

	"spillway/autograd"
	"spillway/device"
	"spillway/dtype"
	"spillway/graph"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/shape"
)

// Phase says which of a block's programs runs.
type Phase string

const (
	ForwardOnly     Phase = "infer"    // nothing is differentiated
	CPUForward      Phase = "cpu"      // the same, by the kernels of the CPU
	Forward         Phase = "forward"  // of a pair
	Backward        Phase = "backward" // of a pair
	ForwardBackward Phase = "step"     // the last block: forward and backward at once
	Squares         Phase = "squares"  // sums of squares of a slab's gradients
)

// Program is one of a block's programs, with places. Fresh marks, by param, whose gradient is
// written for the first time in an iteration instead of added to; of Squares, whose gradient
// is summed.
func (l *Layout) Program(block int, ph Phase, level strategy.Level, fresh []bool) (*LaidProgram, error) {
	key := programKey{l.Model.Blocks[block].Kind, ph, level, marks(fresh), block > l.FirstTrained, l.programs.layouts[block]}
	if laid, ok := l.programs.laid[key]; ok {
		return laid, nil
	}
	laid, err := l.makeProgram(block, ph, level, fresh)
	if err != nil {
		return nil, err
	}
	l.programs.laid[key] = laid
	return laid, nil
}

// programKey is equal for blocks that share a program with places: those of one kind with
// the same offsets in their slabs.
type programKey struct {
	kind      int
	phase     Phase
	level     strategy.Level
	fresh     string
	inputGrad bool
	layout    int
}

// marks are flags as a string, which is short in the usual case that all are equal.
func marks(flags []bool) string {
	switch n := strategy.Count(flags); {
	case n == 0:
		return ""
	case n == len(flags):
		return "all"
	}
	list := make([]byte, len(flags))
	for i, f := range flags {
		if f {
			list[i] = 1
		}
	}
	return string(list)
}

func (l *Layout) makeProgram(block int, ph Phase, level strategy.Level, fresh []bool) (*LaidProgram, error) {
	lay := &programLayout{slabs: &l.Slabs, block: l.Model.Blocks[block], index: block, update: l.Optimizer, parts: l.Batch.at, consts: l.Consts.at}
	var g *graph.Program
	var kept int64
	kernels := l.programs.kernels
	switch ph {
	case ForwardOnly:
		g = l.fused(l.Computed(block))
	case CPUForward:
		g, kernels = anyOrder(l.Model.Program(block)), l.programs.cpuKernels
	case Squares:
		g = squaresProgram(l, block, fresh)
	default:
		key := jointKey{lay.block.Kind, block > l.FirstTrained}
		j, ok := l.programs.joints[key]
		var err error
		if !ok {
			if j, err = autograd.Differentiate(l.fused(l.Computed(block)), autograd.Options{InputGrad: key.inputGrad, Outputs: l.Model.Config.Outputs, Centralize: l.Model.Config.Centralize}); err != nil {
				return nil, fmt.Errorf("differentiating block %s: %w", lay.block.Name, err)
			}
			if l.fuses() {
				j.Fuse(l.hasKernel)
			}
			l.programs.joints[key] = j
		}
		keep := savedValues(j, level)
		lay.savedOffsets = make([]int64, len(keep))
		for i, v := range keep {
			lay.savedOffsets[i] = pass.AlignUp(kept, l.Site.Alignment)
			kept = lay.savedOffsets[i] + j.Program.Type(v).Bytes()
		}
		if g, err = differentiated(j, ph, keep, func(i int) bool { return !fresh[i] }); err != nil {
			return nil, fmt.Errorf("block %s: %w", lay.block.Name, err)
		}
	}
	p, err := lay.lay(g, kernels, l.Site.Alignment)
	if err != nil {
		return nil, err
	}
	laid := &LaidProgram{Program: p, SavedBytes: kept}
	for v, place := range p.Places[1:] {
		if place.Region == "" || place.Region == plan.InFrame {
			continue
		}
		k := plan.Binding{Region: place.Region, Index: place.Index}
		i := slices.Index(laid.Binds, k)
		if i < 0 {
			i = len(laid.Binds)
			laid.Binds, laid.Bytes = append(laid.Binds, k), append(laid.Bytes, 0)
		}
		laid.Bytes[i] = max(laid.Bytes[i], place.Offset+p.Graph.Types[v+1].Bytes())
	}
	if p.Frame > 0 {
		laid.Binds, laid.Bytes = append(laid.Binds, plan.Binding{Region: plan.InFrame}), append(laid.Bytes, 0)
	}
	return laid, nil
}

// Computed is the program of a block as its device computes it, before ops are fused: only a CPU multiplies by
// compressed weights as they are stored.
func (l *Layout) Computed(block int) *graph.Program {
	p := l.Model.Program(block)
	if l.Site.Device.Kind == machine.CPU {
		return p
	}
	if l.programs.decoded[p] == nil {
		l.programs.decoded[p] = graph.Decoded(p)
	}
	return l.programs.decoded[p]
}

// anyOrder is a program whose matmuls may sum in any order: those of a CPU next to a GPU, which rounds
// otherwise anyway.
func anyOrder(p *graph.Program) *graph.Program {
	q := *p
	q.Nodes = slices.Clone(p.Nodes)
	for i := range q.Nodes {
		q.Nodes[i].Attr.AnyOrder = q.Nodes[i].Kind == op.MatMul || q.Nodes[i].Kind == op.QuantizedMatmul
	}
	return &q
}

// fuses says that the device has kernels of several ops at once.
func (l *Layout) fuses() bool {
	f, ok := l.Site.Kernels.(device.OpFuser)
	return ok && f.FusesOps()
}

// hasKernel says that the device has a kernel for a call.
func (l *Layout) hasKernel(c op.Call) bool {
	_, err := l.programs.kernels.Kernel(c)
	return err == nil
}

// fused is a program of a block with the fused ops that the device has kernels for.
func (l *Layout) fused(p *graph.Program) *graph.Program {
	switch {
	case !l.fuses():
		return p
	case l.Model.Config.Task == graph.Train:
		return graph.FuseTraining(p, l.hasKernel)
	case l.Model.Config.Task != graph.Generate:
		return p
	case len(graph.Ports(p.Inputs, graph.Cache)) == 0:
		return graph.Constant(p)
	}
	return graph.Fuse(p, l.hasKernel)
}

func differentiated(j *autograd.Joint, ph Phase, keep []graph.Value, accumulate func(int) bool) (*graph.Program, error) {
	if ph == ForwardBackward {
		return j.Merged(accumulate)
	}
	f, back, err := j.Split(keep, accumulate)
	if ph == Forward {
		return f, err
	}
	return back, err
}

// squaresProgram sums the squares of the gradients of some params of a block, those of one
// slab: a sum for each param.
func squaresProgram(l *Layout, block int, some []bool) *graph.Program {
	p := &graph.Program{Name: "squares", Types: make([]op.Type, 1)}
	for i, id := range l.Model.Blocks[block].Params {
		if !some[i] {
			continue
		}
		n := graph.Value(len(p.Types))
		p.Types = append(p.Types, op.Type{DType: l.Optimizer.GradTypeOf(l.Model.Params[id].Type.DType), Shape: l.Model.Params[id].Type.Shape}, op.Type{DType: dtype.F64, Shape: shape.Of(1)})
		p.Inputs = append(p.Inputs, graph.Port{Value: n, Role: graph.GradParam, Index: i})
		of := n
		if l.Model.Params[id].Momentum > 0 { // a running statistic counts nothing
			of = n + 2
			p.Types = append(p.Types, p.Types[n])
			p.Nodes = append(p.Nodes, graph.Node{Kind: op.Scale, In: []graph.Value{n}, Out: []graph.Value{of}})
		}
		p.Nodes = append(p.Nodes, graph.Node{Kind: op.SumSquares, In: []graph.Value{of}, Out: []graph.Value{n + 1}})
		p.Outputs = append(p.Outputs, graph.Port{Value: n + 1, Role: graph.Partial, Index: len(p.Outputs)})
	}
	return p
}
