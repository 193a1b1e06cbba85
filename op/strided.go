package op

import (
	"fmt"

	"spillway/dtype"
	"spillway/shape"
)

// Ops that move elements and compute nothing. Each is a walk over operand and output, see CopyWalk, so
// that a backend has one kernel for all of them.
const (
	Reshape Kind = "reshape" // the same elements in order as Attr.Shape
	Permute Kind = "permute" // dimension i of the output is dimension Attr.Axes[i] of the operand
	Expand  Kind = "expand"  // repeated to Attr.Shape, by the rule of broadcasts
	Slice   Kind = "slice"   // Attr.Length elements along Attr.Axis, from Attr.Start on, each Attr.Step
	Pad     Kind = "pad"     // zeros of which a slice is the operand: Attr.Length along Attr.Axis; the gradient of Slice
)

func init() {
	Register(Op{Kind: Reshape, Takes: 1, Infer: inferReshape, Reference: referenceStrided, Cases: (*CaseList).strided})
	Register(Op{Kind: Permute, Takes: 1, Infer: inferPermute, Reference: referenceStrided})
	Register(Op{Kind: Expand, Takes: 1, Infer: inferExpand, Reference: referenceStrided})
	Register(Op{Kind: Slice, Takes: 1, Infer: inferSlice, Reference: referenceStrided, Cost: func(c Call) Cost { return Cost{Bytes: 2 * c.Out[0].Bytes()} }})
	Register(Op{Kind: Pad, Takes: 1, Infer: inferPad, Reference: referenceStrided})
}

// movable refuses operands that have no elements of their own, or too many dimensions.
func movable(in []Type) error {
	if in[0].DType.Block() || !in[0].DType.IsPlain() && in[0].DType != dtype.I32 {
		return fmt.Errorf("operand 0 is %v, want plain numbers", in[0])
	}
	if len(in[0].Shape) > maxRank {
		return fmt.Errorf("operand 0 is %v with %d dimensions, %d is the most", in[0], len(in[0].Shape), maxRank)
	}
	return nil
}

func inferReshape(a Attr, in []Type) ([]Type, error) {
	if err := check(movable(in), a.Shape.Check()); err != nil {
		return nil, err
	}
	if a.Shape.Elements() != in[0].Shape.Elements() {
		return nil, fmt.Errorf("%v has %d elements, shape %v has %d", in[0], in[0].Shape.Elements(), a.Shape, a.Shape.Elements())
	}
	return []Type{{in[0].DType, a.Shape}}, nil
}

func inferPermute(a Attr, in []Type) ([]Type, error) {
	s, ok := in[0].Shape.Permuted(a.Axes)
	if !ok {
		return nil, fmt.Errorf("%v are not the %d dimensions of %v in some order", a.Axes, len(in[0].Shape), in[0])
	}
	return []Type{{in[0].DType, s}}, movable(in)
}

func inferExpand(a Attr, in []Type) ([]Type, error) {
	s, err := shape.Broadcast(a.Shape, in[0].Shape)
	if err == nil && !s.Equal(a.Shape) {
		err = fmt.Errorf("%v cannot be repeated to %v", in[0], a.Shape)
	}
	if len(a.Shape) > maxRank {
		return nil, fmt.Errorf("%v has %d dimensions, %d is the most", a.Shape, len(a.Shape), maxRank)
	}
	return []Type{{in[0].DType, a.Shape}}, check(err, a.Shape.Check(), movable(in))
}

// every is the step of a slice.
func (a Attr) every() int64 { return max(a.Step, 1) }

func inferSlice(a Attr, in []Type) ([]Type, error) {
	s := in[0].Shape
	if !s.Has(a.Axis, 1) || a.Step < 0 {
		return nil, fmt.Errorf("%v has no dimension %d, counted from the last, or a step of %d", in[0], a.Axis, a.Step)
	}
	_, n, _ := s.Around(a.Axis, 1)
	if a.Start < 0 || a.Length < 1 || a.Start >= n || a.Length-1 > (n-1-a.Start)/a.every() {
		return nil, fmt.Errorf("%d elements from %d on, each %d, of the %d of %v", a.Length, a.Start, a.every(), n, in[0])
	}
	return []Type{{in[0].DType, s.With(a.Axis, a.Length)}}, movable(in)
}

func inferPad(a Attr, in []Type) ([]Type, error) {
	s := in[0].Shape
	if !s.Has(a.Axis, 1) || a.Step < 0 {
		return nil, fmt.Errorf("%v has no dimension %d, counted from the last, or a step of %d", in[0], a.Axis, a.Step)
	}
	_, n, _ := s.Around(a.Axis, 1)
	if a.Start < 0 || n < 1 || a.Start >= a.Length || n-1 > (a.Length-1-a.Start)/a.every() {
		return nil, fmt.Errorf("the %d elements of %v from %d on, each %d, among %d", n, in[0], a.Start, a.every(), a.Length)
	}
	out := s.With(a.Axis, a.Length)
	return []Type{{in[0].DType, out}}, check(out.Check(), movable(in))
}

// CopyWalk goes over operand and output of an op that moves elements, from these places on. Of Pad,
// what the walk does not reach is zero.
func (c Call) CopyWalk() (w shape.Walk, from, to int64) {
	in, out, a := c.In[0].Shape, c.Out[0].Shape, c.Attr
	switch c.Kind {
	case Expand:
		return shape.BroadcastWalk(out, in, out), 0, 0
	case Permute:
		w = shape.Walk{Dims: out, Strides: [][]int64{nil, out.Strides()}}
		strides := in.Strides()
		for _, axis := range a.Axes {
			w.Strides[0] = append(w.Strides[0], strides[axis])
		}
	case Slice, Pad:
		at := int64(len(in)) - 1 - a.Axis
		w = shape.Walk{Dims: out, Strides: [][]int64{in.Strides(), out.Strides()}}
		if c.Kind == Slice {
			from = a.Start * w.Strides[0][at]
			w.Strides[0][at] *= a.every()
		} else {
			w.Dims = in
			to = a.Start * w.Strides[1][at]
			w.Strides[1][at] *= a.every()
		}
	default:
		w = shape.Walk{Dims: in, Strides: [][]int64{in.Strides(), in.Strides()}}
	}
	return w.Merged(), from, to
}

func referenceStrided(c Call, in, out []Array, _ Args) {
	w, from, to := c.CopyWalk()
	clear(out[0].F)
	clear(out[0].I)
	w.Each(func(at []int64) {
		if in[0].I != nil {
			out[0].I[to+at[1]] = in[0].I[from+at[0]]
		} else {
			out[0].F[to+at[1]] = in[0].F[from+at[0]]
		}
	})
}

func (l *CaseList) strided() {
	l.Add("flatten", Reshape, Attr{Shape: shape.Of(2, 15)}, l.X(2, 3, 5))
	l.Add("scalar", Reshape, Attr{Shape: shape.Of()}, l.X(1))
	for _, p := range []struct {
		dims []int
		axes []int64
	}{{[]int{3, 5}, []int64{1, 0}}, {[]int{2, 3, 4, 5}, []int64{0, 2, 3, 1}}, {[]int{2, 3, 4, 5}, []int64{3, 1, 0, 2}}, {[]int{67, 65}, []int64{1, 0}}, {[]int{2, 33, 4, 16}, []int64{0, 2, 1, 3}}, {[]int{4}, []int64{0}}} {
		l.Add(fmt.Sprint(p.dims, p.axes), Permute, Attr{Axes: p.axes}, l.X(p.dims...))
	}
	l.Add("rows", Expand, Attr{Shape: shape.Of(4, 3, 5)}, l.X(3, 5))
	l.Add("columns", Expand, Attr{Shape: shape.Of(2, 3, 70)}, l.X(2, 3, 1))
	l.Add("middle", Expand, Attr{Shape: shape.Of(2, 6, 5)}, l.X(2, 1, 5))
	for _, axis := range []int64{0, 1, 2} {
		name := fmt.Sprint("axis ", axis)
		l.Add(name, Slice, Attr{Axis: axis, Start: 1, Length: 2}, l.X(4, 5, 6))
		l.Add(name+" step", Slice, Attr{Axis: axis, Length: 2, Step: 3}, l.X(4, 5, 6))
		l.Add(name, Pad, Attr{Axis: axis, Start: 1, Length: 9}, l.X(4, 5, 6))
		l.Add(name+" step", Pad, Attr{Axis: axis, Start: 2, Length: 20, Step: 3}, l.X(4, 5, 6))
	}
	l.Add("rows of 96", Slice, Attr{Axis: 1, Start: 1, Length: 16}, l.X(2, 17, 96))
}
