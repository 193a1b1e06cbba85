package op

import (
	"fmt"
	"slices"

	"spillway/shape"
)

func init() {
	Register(Op{Kind: Split, Takes: 1, Infer: inferSplit, Reference: referenceSplit, Cases: (*CaseList).rearrangements})
	Register(Op{Kind: Concat, Infer: inferConcat, Reference: referenceConcat})
	Register(Op{Kind: SumRows, Takes: 1, Infer: inferSumRows, Cost: costSumRows, Accumulates: firstOutput, Reference: referenceSumRows})
}

// Split: cuts dimension Attr.Axis, counted from the last, into parts of Attr.Sizes.
const Split Kind = "split"

func inferSplit(a Attr, in []Type) ([]Type, error) {
	if err := check(movable(in), rank(in, 0, 1)); err != nil {
		return nil, err
	}
	if !in[0].Shape.Has(a.Axis, 1) {
		return nil, fmt.Errorf("%v has no dimension %d, counted from the last", in[0], a.Axis)
	}
	_, whole, _ := in[0].Shape.Around(a.Axis, 1)
	var sum int64
	out := make([]Type, len(a.Sizes))
	for i, n := range a.Sizes {
		if n <= 0 || n > whole {
			return nil, fmt.Errorf("part %d has size %d, want 1 to the %d of that dimension of %v", i, n, whole, in[0])
		}
		sum += n
		out[i] = Type{in[0].DType, in[0].Shape.With(a.Axis, n)}
	}
	if sum != whole {
		return nil, fmt.Errorf("parts %v add up to %d, that dimension of %v is %d", a.Sizes, sum, in[0], whole)
	}
	return out, nil
}

// Concat: joins operands along dimension Attr.Axis, counted from the last; the inverse of Split.
const Concat Kind = "concat"

func inferConcat(a Attr, in []Type) ([]Type, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("takes operands")
	}
	if !in[0].Shape.Has(a.Axis, 1) {
		return nil, fmt.Errorf("%v has no dimension %d, counted from the last", in[0], a.Axis)
	}
	var sum int64
	for i, t := range in {
		if t.DType != in[0].DType || !t.Shape.Has(a.Axis, 1) || !t.Shape.With(a.Axis, 1).Equal(in[0].Shape.With(a.Axis, 1)) {
			return nil, fmt.Errorf("operand %d is %v next to %v: only dimension %d, counted from the last, may differ", i, t, in[0], a.Axis)
		}
		_, n, _ := t.Shape.Around(a.Axis, 1)
		sum += n
	}
	return []Type{{in[0].DType, in[0].Shape.With(a.Axis, sum)}}, movable(in)
}

// SumRows: sums over the outer dimensions and keeps the Attr.Keep inner ones; the
// gradient of a broadcast.
const SumRows Kind = "sum_rows"

func inferSumRows(a Attr, in []Type) ([]Type, error) {
	cut := int64(len(in[0].Shape)) - a.InnerDims
	if a.InnerDims < 1 || cut < 0 {
		return nil, fmt.Errorf("keeps %d dimensions of %v", a.InnerDims, in[0])
	}
	return []Type{{in[0].DType, shape.Shape(in[0].Shape[cut:])}}, float(in, 0)
}

func costSumRows(c Call) Cost { return Cost{Flops: float64(c.In[0].Shape.Elements())} }

// Run is how many elements lie together in a part that Split makes or Concat takes: its size along the
// dimension, and all behind it.
func (a Attr) Run(t Type) int64 {
	_, n, inner := t.Shape.Around(a.Axis, 1)
	return n * inner
}

func referenceSplit(c Call, in, out []Array, _ Args) {
	eachPart(c.Attr, in[0], out, func(part, whole []float64) { copy(part, whole) }, func(part, whole []int32) { copy(part, whole) })
}

// eachPart calls one of two functions with each row of each part and where it is in the whole, as the type of the numbers is.
func eachPart(a Attr, whole Array, parts []Array, numbers func(part, whole []float64), integers func(part, whole []int32)) {
	wide, at := a.Run(whole.Type), int64(0)
	for _, part := range parts {
		run := a.Run(part.Type)
		for n := range part.Type.Shape.Elements() / run {
			from := n*wide + at
			if part.I != nil {
				integers(part.I[n*run:][:run], whole.I[from:][:run])
			} else {
				numbers(part.F[n*run:][:run], whole.F[from:][:run])
			}
		}
		at += run
	}
}

func referenceConcat(c Call, in, out []Array, _ Args) {
	eachPart(c.Attr, out[0], in, func(part, whole []float64) { copy(whole, part) }, func(part, whole []int32) { copy(whole, part) })
}

func referenceSumRows(c Call, in, out []Array, _ Args) {
	clear(out[0].F)
	for row := range slices.Chunk(in[0].F, len(out[0].F)) {
		axpy(1, row, out[0].F)
	}
}

func (l *CaseList) rearrangements() {
	l.Add("unequal", Split, Attr{Sizes: []int64{5, 1, 9}}, l.X(2, 3, 15))
	l.Add("one part", Split, Attr{Sizes: []int64{7}}, l.X(3, 7))
	l.Add("middle", Split, Attr{Axis: 1, Sizes: []int64{5, 1, 9}}, l.X(2, 15, 3))
	l.Add("first", Split, Attr{Axis: 2, Sizes: []int64{1, 3}}, l.X(4, 5, 3))
	l.Add("middle", Concat, Attr{Axis: 1}, l.X(2, 5, 8), l.X(2, 1, 8), l.X(2, 9, 8))
	l.Add("ids", Split, Attr{Sizes: []int64{2, 1, 4}}, Below(1000, 5, 7))
	l.Add("ids", Concat, Attr{Axis: 1}, Below(1000, 2, 3, 5), Below(900, 2, 4, 5))
	l.Add("q k v", Split, Attr{Sizes: []int64{64, 16, 16}}, l.X(1, 33, 96))
	l.Add("unequal", Concat, Attr{}, l.X(2, 3, 5), l.X(2, 3, 1), l.X(2, 3, 9))
	l.Add("one part", Concat, Attr{}, l.X(3, 7))
	l.Both("keep 1", SumRows, Attr{InnerDims: 1}, l.X(2, 3, 19))
	l.Both("keep 2", SumRows, Attr{InnerDims: 2}, l.X(4, 3, 5))
	l.Both("keep all", SumRows, Attr{InnerDims: 2}, l.X(3, 5))
	l.Both("1 row", SumRows, Attr{InnerDims: 1}, l.X(1, 35))
	l.Add("tall", SumRows, Attr{InnerDims: 1}, l.X(517, 33)).Large = true
}
