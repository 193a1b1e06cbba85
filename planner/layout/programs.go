package layout

import (
	"fmt"
	"slices"
	"strings"

	"spillway/autograd"
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
	"spillway/planner/pass"
	"spillway/planner/strategy"
	"spillway/shape"
)

// joint is a block's program together with its gradient.
func (l *Layout) joint(block int) (*autograd.Joint, error) {
	key := jointKey{l.Model.Blocks[block].Kind, block > l.FirstTrained}
	if j, ok := l.programs.joints[key]; ok {
		return j, nil
	}
	j, err := autograd.Differentiate(l.Model.Program(block), autograd.Options{InputGrad: key.inputGrad})
	if err != nil {
		return nil, fmt.Errorf("differentiating block %s: %w", l.Model.Blocks[block].Name, err)
	}
	l.programs.joints[key] = j
	return j, nil
}

// Phase says which of a block's programs runs.
type Phase string

const (
	ForwardOnly     Phase = "infer"    // nothing is differentiated
	Forward         Phase = "forward"  // of a pair
	Backward        Phase = "backward" // of a pair
	ForwardBackward Phase = "step"     // the last block: forward and backward at once
	Squares         Phase = "squares"  // sums of squares of a slab's gradients
)

// Program is one of a block's programs, with places. Fresh marks, by param, whose gradient is
// written for the first time in an iteration instead of added to; of Squares, whose gradient
// is summed.
func (l *Layout) Program(block int, ph Phase, level strategy.Level, fresh []bool) (*LaidProgram, error) {
	key := l.programKey(block, ph, level, fresh)
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

func (l *Layout) programKey(block int, ph Phase, level strategy.Level, fresh []bool) programKey {
	return programKey{l.Model.Blocks[block].Kind, ph, level, marks(fresh), block > l.FirstTrained, l.programs.layouts[block]}
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

// offsetsOf describes where the params of a block lie in their slabs.
func (l *Layout) offsetsOf(block int) string {
	var s strings.Builder
	for _, id := range l.Model.Blocks[block].Params {
		at := l.Slabs.Place[id]
		q := l.Slabs.List[at.Slab].Params[at.index]
		fmt.Fprintf(&s, "%d:%d:%d ", slices.Index(l.Slabs.OfBlock[block], at.Slab), q.Offset, q.Element)
	}
	return s.String()
}

func (l *Layout) makeProgram(block int, ph Phase, level strategy.Level, fresh []bool) (*LaidProgram, error) {
	lay := &programLayout{slabs: &l.Slabs, block: l.Model.Blocks[block], index: block, update: l.Optimizer, parts: l.Batch.at, consts: l.Consts.at}
	var g *graph.Program
	var kept int64
	switch ph {
	case ForwardOnly:
		g = l.Model.Program(block)
	case Squares:
		g = l.squaresProgram(block, fresh)
	default:
		j, err := l.joint(block)
		if err != nil {
			return nil, err
		}
		keep := savedValues(j, level)
		lay.savedOffsets, kept = laySaved(j, keep, l.Site.Alignment)
		g, err = differentiated(j, ph, keep, func(i int) bool { return !fresh[i] })
		if err != nil {
			return nil, fmt.Errorf("block %s: %w", lay.block.Name, err)
		}
	}
	p, err := lay.lay(g, l.programs.kernels, l.Site.Alignment)
	if err != nil {
		return nil, err
	}
	laid := &LaidProgram{Program: p, SavedBytes: kept, Binds: bindsOf(p)}
	for _, need := range laid.Binds {
		laid.Bytes = append(laid.Bytes, regionBytes(laid, need))
	}
	return laid, nil
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

func laySaved(j *autograd.Joint, keep []graph.Value, align int64) (map[int]int64, int64) {
	at, bytes := map[int]int64{}, int64(0)
	for i, v := range keep {
		at[i] = pass.AlignUp(bytes, align)
		bytes = at[i] + j.Program.Type(v).Bytes()
	}
	return at, bytes
}

// squaresProgram sums the squares of the gradients of some params of a block, those of one
// slab: a sum for each param.
func (l *Layout) squaresProgram(block int, some []bool) *graph.Program {
	p := &graph.Program{Name: "squares", Types: make([]op.Type, 1)}
	for i, id := range l.Model.Blocks[block].Params {
		if !some[i] {
			continue
		}
		n := graph.Value(len(p.Types))
		p.Types = append(p.Types, op.Type{DType: l.Optimizer.GradTypeOf(l.Model.Params[id].Type.DType), Shape: l.Model.Params[id].Type.Shape}, op.Type{DType: dtype.F64, Shape: shape.Of(1)})
		p.Inputs = append(p.Inputs, graph.Port{Value: n, Role: graph.GradParam, Index: i})
		p.Nodes = append(p.Nodes, graph.Node{Kind: op.SumSquares, In: []graph.Value{n}, Out: []graph.Value{n + 1}})
		p.Outputs = append(p.Outputs, graph.Port{Value: n + 1, Role: graph.Partial, Index: len(p.Outputs)})
	}
	return p
}

// bindsOf lists the regions a program touches.
func bindsOf(p plan.Program) []plan.Binding {
	var binds []plan.Binding
	seen := map[plan.Binding]bool{}
	for _, place := range p.Places[1:] {
		k := plan.Binding{Region: place.Region, Index: place.Index}
		if place.Region == "" || place.Region == plan.InFrame || seen[k] {
			continue
		}
		seen[k] = true
		binds = append(binds, k)
	}
	if p.Frame > 0 {
		binds = append(binds, plan.Binding{Region: plan.InFrame})
	}
	return binds
}

// regionBytes is where the last value of a region ends.
func regionBytes(l *LaidProgram, need plan.Binding) (end int64) {
	for v, place := range l.Places {
		if v > 0 && place.Region == need.Region && place.Index == need.Index {
			end = max(end, place.Offset+l.Graph.Types[v].Bytes())
		}
	}
	return end
}
