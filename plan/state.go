package plan

import (
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// StateAlignment is the alignment in bytes of every state in the home of a piece: what
// the widest loads of every backend need.
const StateAlignment = 256

// StateBlockElements is the number of elements that share a scale in an 8-bit state. Where
// a param has such a state, it and each of its parts in pieces begin at a multiple of it.
const StateBlockElements = quant.StateBlock

// Span is a part of a piece that one launch updates: a param, a part of one, or several
// adjacent ones with the same settings.
type Span struct {
	Name    string      // of the first param
	Offset  int64       // of its weights in the slab, bytes
	Element int64       // of the slab, the first one
	Shape   shape.Shape // as the optimizer sees it: a vector, or a whole param's own
	Type    dtype.Type  // of the weights
	Decay   bool
	Group   int
	// Momentum of running statistics, see SlabParam.
	Momentum float64
	States   []StatePlace
}

// StatePlace is a state in the home of a piece.
type StatePlace struct {
	Type   op.Type
	Offset int64 // bytes
}

// Elements of the span.
func (s Span) Elements() int64 { return s.Shape.Elements() }

// HasBlockState says whether a state of the param has blocks of elements with one scale.
func (p SlabParam) HasBlockState() bool {
	return slices.ContainsFunc(p.States, func(s op.State) bool { return s.Type.DType.Block() })
}

// Within is the part of a param inside a piece, as a vector; frozen if there is none.
// States of another shape than the param's stay as they are.
func (p SlabParam) Within(piece Piece) SlabParam {
	if p.Frozen() {
		return p
	}
	n := p.Type.Shape.Elements()
	from, to := max(p.Element, piece.From), min(p.Element+n, piece.To)
	if from >= to {
		p.Element = -1
		return p
	}
	p.Offset += p.Type.DType.Bytes(from - p.Element)
	p.Element, p.Type.Shape = from, shape.Shape{to - from}
	return p
}

// Spans lists the launches that update a piece of a slab, and where in its home each state
// is: span after span, state after state. Planner, verifier, executor and checkpoints all
// ask it.
func (u *Optimizer) Spans(s *Slab, piece Piece) []Span {
	var list []Span
	for _, p := range s.Params {
		part := p.Within(piece)
		switch {
		case part.Frozen():
		case u.Rule.WholeParam():
			list = append(list, whole(p))
		case len(list) > 0 && list[len(list)-1].continues(part):
			last := &list[len(list)-1]
			last.grow(last.Elements() + part.Type.Shape.Elements())
		default:
			list = append(list, whole(part))
			list[len(list)-1].grow(part.Type.Shape.Elements())
		}
	}
	var at int64
	for _, span := range list {
		for i := range span.States {
			state := &span.States[i]
			state.Offset = (at + StateAlignment - 1) / StateAlignment * StateAlignment
			at = state.Offset + state.Type.Bytes()
		}
	}
	return list
}

// StateBytes is the size of a piece's home for the states of its spans.
func StateBytes(spans []Span) (bytes int64) {
	for _, s := range spans {
		for _, state := range s.States {
			bytes = state.Offset + state.Type.Bytes()
		}
	}
	return bytes
}

// whole is a param that is updated by itself.
func whole(p SlabParam) Span {
	s := Span{Name: p.Name, Offset: p.Offset, Element: p.Element, Shape: p.Type.Shape, Type: p.Type.DType, Decay: p.Decay, Group: p.Group, Momentum: p.Momentum}
	for _, state := range p.States {
		s.States = append(s.States, StatePlace{Type: state.Type})
	}
	return s
}

// grow makes the span and its states n elements long.
func (s *Span) grow(n int64) {
	s.Shape = shape.Shape{n}
	for i := range s.States {
		s.States[i].Type.Shape = s.Shape
	}
}

// continues says whether a part of a param can join the span: it is the next one in
// weights and elements, has the same settings, and no block of a state would hold elements
// of both.
func (s *Span) continues(part SlabParam) bool {
	n := s.Elements()
	if s.Decay != part.Decay || s.Group != part.Group || s.Momentum != part.Momentum || s.Type != part.Type.DType || s.Element+n != part.Element || s.Offset+s.Type.Bytes(n) != part.Offset || len(s.States) != len(part.States) {
		return false
	}
	for i, state := range part.States {
		if s.States[i].Type.DType != state.Type.DType || state.Type.DType.Block() && n%StateBlockElements != 0 {
			return false
		}
	}
	return true
}

// HasMaster says whether weights of a type have a copy at full precision. f32 weights are
// their own masters.
func (u *Optimizer) HasMaster(weight dtype.Type) bool {
	return u.Attr.To != dtype.Invalid && weight != dtype.F32
}

// GradTypeOf is the type of the gradients of weights of a type.
func (u *Optimizer) GradTypeOf(weight dtype.Type) dtype.Type {
	if weight == dtype.F32 {
		return dtype.F32
	}
	return u.GradType
}

// Call is the update of a span.
func (u *Optimizer) Call(s Span) (op.Call, error) {
	weight, attr := s.Type, u.Attr
	if u.HasMaster(s.Type) {
		weight = dtype.F32
	} else {
		attr.To = dtype.Invalid
	}
	gradient := u.GradTypeOf(s.Type)
	if u.Held {
		gradient = dtype.F32
	}
	types := []op.Type{{DType: weight, Shape: s.Shape}, {DType: gradient, Shape: s.Shape}}
	if s.Momentum > 0 {
		return op.Make(op.Blend, op.Attr{}, append(types, op.Type{DType: dtype.F32, Shape: shape.Shape{2}})...)
	}
	for _, state := range u.RuleStates(s) {
		types = append(types, state.Type)
	}
	return op.Make(u.Rule, attr, append(types, op.Type{DType: dtype.F32, Shape: shape.Shape{2}})...)
}

// RuleStates are those of the rule, without held gradients and averages.
func (u *Optimizer) RuleStates(s Span) []StatePlace {
	list := s.States
	if u.Held {
		list = list[1:]
	}
	if u.Averaged {
		list = list[:len(list)-1]
	}
	return list
}

// HoldCall adds the gradient of a span to what is held of it.
func (u *Optimizer) HoldCall(s Span) (op.Call, error) { return u.blend(s, u.GradTypeOf(s.Type)) }

// AverageCall adds the updated weights of a span to their average.
func (u *Optimizer) AverageCall(s Span) (op.Call, error) {
	if u.HasMaster(s.Type) {
		return u.blend(s, dtype.F32)
	}
	return u.blend(s, s.Type)
}

func (u *Optimizer) blend(s Span, from dtype.Type) (op.Call, error) {
	return op.Make(op.Blend, op.Attr{}, op.Type{DType: dtype.F32, Shape: s.Shape}, op.Type{DType: from, Shape: s.Shape}, op.Type{DType: dtype.F32, Shape: shape.Shape{2}})
}

// checkExtraStates refuses held gradients and averages that are not where they must be.
func (u *Optimizer) checkExtraStates(p SlabParam) error {
	is := func(at int, name string) bool {
		return at >= 0 && at < len(p.States) && p.States[at].Name == name && p.States[at].Type.Equal(op.Type{DType: dtype.F32, Shape: p.Type.Shape})
	}
	if u.Held && !is(0, HeldGradient) || u.Averaged && (!is(len(p.States)-1, Average) || u.Held && len(p.States) < 2) {
		return fmt.Errorf("param %s has the states %v, without the held gradient first or the average last", p.Name, p.States)
	}
	return nil
}

// verifyStates checks that the optimizer can work with the states of a slab, and that its
// pieces cut neither blocks nor params that are updated whole.
func (p *Plan) verifyStates(s *Slab) error {
	for _, q := range s.Params {
		if !q.Frozen() && q.Type.DType != s.TrainedType() {
			return fmt.Errorf("slab %s trains %s in %v and others in %v", s.Name, q.Name, q.Type.DType, s.TrainedType())
		}
		if !q.Frozen() && p.Optimizer != nil {
			if err := p.Optimizer.checkExtraStates(q); err != nil {
				return err
			}
		}
	}
	for _, piece := range s.Pieces {
		if master := piece.Master >= 0; master != p.Optimizer.HasMaster(s.TrainedType()) {
			return fmt.Errorf("slab %s of %v has a master: %v; want %v", s.Name, s.TrainedType(), master, !master)
		}
		for _, q := range s.Params {
			part := q.Within(piece)
			if part.Frozen() {
				continue
			}
			if q.HasBlockState() && (q.Element%StateBlockElements != 0 || part.Element%StateBlockElements != 0) {
				return fmt.Errorf("slab %s: a piece from %d on cuts param %s, at %d, inside a block", s.Name, piece.From, q.Name, q.Element)
			}
			if p.Optimizer.Rule.WholeParam() && part.Type.Shape.Elements() != q.Type.Shape.Elements() {
				return fmt.Errorf("slab %s: a piece from %d on cuts param %s, which %s updates whole", s.Name, piece.From, q.Name, p.Optimizer.Rule)
			}
		}
		spans := p.Optimizer.Spans(s, piece)
		for _, span := range spans {
			if _, err := p.Optimizer.Call(span); err != nil {
				return fmt.Errorf("slab %s, params from %s on: %w", s.Name, span.Name, err)
			}
		}
		if need := StateBytes(spans); piece.State < 0 && need > 0 || piece.State >= 0 && (piece.State >= len(p.Buffers) || p.Buffers[piece.State].Bytes < need) {
			return fmt.Errorf("slab %s: the states of the piece from %d on take %d bytes, more than its home %d", s.Name, piece.From, need, piece.State)
		}
	}
	return nil
}
