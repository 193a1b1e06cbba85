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

// Split: cuts the last dimension into parts of Attr.Sizes.
const Split Kind = "split"

func inferSplit(a Attr, in []Type) ([]Type, error) {
	if err := check(float(in, 0), rank(in, 0, 1)); err != nil {
		return nil, err
	}
	var sum int64
	out := make([]Type, len(a.Sizes))
	for i, n := range a.Sizes {
		if n <= 0 {
			return nil, fmt.Errorf("part %d has size %d", i, n)
		}
		sum += n
		out[i] = Type{in[0].DType, in[0].Shape.WithLast(n)}
	}
	if sum != in[0].Shape.Last() {
		return nil, fmt.Errorf("parts %v add up to %d, the last dimension of %v is %d", a.Sizes, sum, in[0], in[0].Shape.Last())
	}
	return out, nil
}

// Concat: joins operands along the last dimension; the inverse of Split.
const Concat Kind = "concat"

func inferConcat(a Attr, in []Type) ([]Type, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("takes operands")
	}
	var sum int64
	for i, t := range in {
		if t.DType != in[0].DType || len(t.Shape) == 0 || !t.Shape[:len(t.Shape)-1].Equal(in[0].Shape[:len(in[0].Shape)-1]) {
			return nil, fmt.Errorf("operand %d is %v next to %v: only the last dimension may differ", i, t, in[0])
		}
		sum += t.Shape.Last()
	}
	return []Type{{in[0].DType, in[0].Shape.WithLast(sum)}}, float(in, 0)
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

func referenceSplit(c Call, in, out []Array, _ Args) {
	var at int64
	wide := rows(in[0].F, c.In[0].Shape.Last())
	for part, size := range c.Attr.Sizes {
		for n, row := range rows(out[part].F, size) {
			copy(row, wide[n][at:])
		}
		at += size
	}
}

func referenceConcat(c Call, in, out []Array, _ Args) {
	var at int64
	wide := rows(out[0].F, c.Out[0].Shape.Last())
	for _, part := range in {
		size := part.Type.Shape.Last()
		for n, row := range rows(part.F, size) {
			copy(wide[n][at:], row)
		}
		at += size
	}
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
	l.Add("q k v", Split, Attr{Sizes: []int64{64, 16, 16}}, l.X(1, 33, 96))
	l.Add("unequal", Concat, Attr{}, l.X(2, 3, 5), l.X(2, 3, 1), l.X(2, 3, 9))
	l.Add("one part", Concat, Attr{}, l.X(3, 7))
	l.Both("keep 1", SumRows, Attr{InnerDims: 1}, l.X(2, 3, 19))
	l.Both("keep 2", SumRows, Attr{InnerDims: 2}, l.X(4, 3, 5))
	l.Both("keep all", SumRows, Attr{InnerDims: 2}, l.X(3, 5))
	l.Both("1 row", SumRows, Attr{InnerDims: 1}, l.X(1, 35))
	l.Add("tall", SumRows, Attr{InnerDims: 1}, l.X(517, 33)).Large = true
}
