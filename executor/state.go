package executor

import (
	"slices"

	"spillway/dtype"
	"spillway/op"
	"spillway/plan"
	"spillway/quant"
)

// States lists the masters and optimizer states of trained params.
func (e *Executor) States() []Tensor {
	var list []Tensor
	if e.Plan().Optimizer == nil {
		return nil
	}
	for k := range e.Plan().Slabs {
		s := &e.Plan().Slabs[k]
		spans := make([][]plan.Span, len(s.Pieces))
		for i, piece := range s.Pieces {
			spans[i] = e.Plan().Optimizer.Spans(s, piece)
		}
		for _, p := range s.Params {
			if p.Frozen() {
				continue
			}
			if s.Pieces[0].Master >= 0 {
				list = append(list, e.memory.master(p, s))
			}
			for i := range p.States {
				list = append(list, e.memory.state(p, i, s, spans))
			}
		}
	}
	return list
}

// master of a param, from the pieces of its slab.
func (m *memory) master(p plan.SlabParam, s *plan.Slab) Tensor {
	t := Tensor{Param: p, State: Master, Type: op.Type{DType: dtype.F32, Shape: p.Type.Shape}}
	for _, piece := range s.Pieces {
		if part := p.Within(piece); !part.Frozen() {
			t.at = append(t.at, m.partOf(piece.Master, 4*(part.Element-piece.From), 4*part.Type.Shape.Elements()))
		}
	}
	return t
}

// state is the i-th state of a param, from the spans of its slab's pieces. In a block type
// the scales of all pieces come first, then all codes, as in one tensor.
func (m *memory) state(p plan.SlabParam, i int, s *plan.Slab, spans [][]plan.Span) Tensor {
	t := Tensor{Param: p, State: p.States[i].Name, Type: p.States[i].Type}
	var codes []deviceBuffer
	for k, piece := range s.Pieces {
		part := p.Within(piece)
		if part.Frozen() {
			continue
		}
		in := slices.IndexFunc(spans[k], func(s plan.Span) bool { return part.Element < s.Element+s.Elements() }) // there is one
		span := spans[k][in]
		place, first, n := span.States[i], part.Element-span.Element, part.Type.Shape.Elements()
		switch {
		case !t.Type.Shape.Equal(p.Type.Shape): // of the param whole
			t.at = append(t.at, m.partOf(piece.State, place.Offset, t.Type.Bytes()))
		case t.Type.DType.Block():
			scales := scaleBytes(span.Elements())
			t.at = append(t.at, m.partOf(piece.State, place.Offset+scaleBytes(first), scaleBytes(n)))
			codes = append(codes, m.partOf(piece.State, place.Offset+scales+first, n))
		default:
			t.at = append(t.at, m.partOf(piece.State, place.Offset+t.Type.DType.Bytes(first), t.Type.DType.Bytes(n)))
		}
	}
	t.scales = len(t.at)
	t.at = append(t.at, codes...)
	return t
}

// scaleBytes is what the scales of n elements take.
func scaleBytes(n int64) int64 {
	return 4 * ((n + quant.StateBlock - 1) / quant.StateBlock)
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
