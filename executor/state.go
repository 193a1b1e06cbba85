package executor

import (
	"spillway/dtype"
	"spillway/op"
	"spillway/plan"
	"spillway/quant"
)

// States lists what the optimizer keeps: masters and states of trained params.
func (e *Executor) States() []Tensor {
	var list []Tensor
	if e.plan.Optimizer == nil {
		return nil
	}
	for k := range e.plan.Slabs {
		list = append(list, e.slabStates(&e.plan.Slabs[k])...)
	}
	return list
}

func (e *Executor) slabStates(s *plan.Slab) (list []Tensor) {
	stretches := make([][]plan.Span, len(s.Pieces))
	for i, piece := range s.Pieces {
		stretches[i] = e.plan.Optimizer.Spans(s, piece)
	}
	for _, p := range s.Params {
		if p.Frozen() {
			continue
		}
		if s.Pieces[0].Master >= 0 {
			list = append(list, e.master(p, s))
		}
		for i := range p.States {
			list = append(list, e.state(p, i, s, stretches))
		}
	}
	return list
}

// master of a param, from the pieces of its slab.
func (e *Executor) master(p plan.SlabParam, s *plan.Slab) Tensor {
	t := Tensor{Param: p, State: Master, Type: op.Type{DType: dtype.F32, Shape: p.Type.Shape}}
	for _, piece := range s.Pieces {
		if part := p.Within(piece); !part.Frozen() {
			t.at = append(t.at, e.partOf(piece.Master, 4*(part.Element-piece.From), 4*part.Type.Shape.Elements()))
		}
	}
	return t
}

// state is the i-th state of a param, from the stretches of its slab's pieces. In a
// block type the scales of all pieces come first, then all codes, as in one tensor.
func (e *Executor) state(p plan.SlabParam, i int, s *plan.Slab, stretches [][]plan.Span) Tensor {
	t := Tensor{Param: p, State: p.States[i].Name, Type: p.States[i].Type}
	var codes []deviceBuffer
	for k, piece := range s.Pieces {
		part := p.Within(piece)
		if part.Frozen() {
			continue
		}
		stretch := holding(stretches[k], part.Element)
		place, first, n := stretch.States[i], part.Element-stretch.Element, part.Type.Shape.Elements()
		switch {
		case !t.Type.Shape.Equal(p.Type.Shape): // of the param whole
			t.at = append(t.at, e.partOf(piece.State, place.Offset, t.Type.Bytes()))
		case t.Type.DType.Block():
			scales := scaleBytes(stretch.Elements())
			t.at = append(t.at, e.partOf(piece.State, place.Offset+scaleBytes(first), scaleBytes(n)))
			codes = append(codes, e.partOf(piece.State, place.Offset+scales+first, n))
		default:
			t.at = append(t.at, e.partOf(piece.State, place.Offset+t.Type.DType.Bytes(first), t.Type.DType.Bytes(n)))
		}
	}
	t.scales = len(t.at)
	t.at = append(t.at, codes...)
	return t
}

// holding finds the stretch that an element is in; there is one.
func holding(list []plan.Span, element int64) plan.Span {
	for _, s := range list {
		if element < s.Element+s.Elements() {
			return s
		}
	}
	return plan.Span{}
}

// scaleBytes is what the scales of n elements take.
func scaleBytes(n int64) int64 {
	return 4 * ((n + quant.DynamicBlock - 1) / quant.DynamicBlock)
}

// Absmax is the suffix of the state that the scales of one in blocks are called.
const Absmax = ".absmax"

// Plain is the tensor as tensors of plain types, which files can hold: itself, or of a
// state in blocks its codes, a byte each, and its scales.
func (t Tensor) Plain() []Tensor {
	if t.State == "" || !t.Type.DType.Block() {
		return []Tensor{t}
	}
	codes, scales := t, t
	codes.at, codes.Type.DType = t.at[t.scales:], dtype.U8
	scales.at, scales.State = t.at[:t.scales], t.State+Absmax
	scales.Type = op.Type{DType: dtype.F32, Shape: []int64{scaleBytes(t.Type.Shape.Elements()) / 4}}
	return []Tensor{codes, scales}
}
