package op

import (
	"fmt"

	"spillway/dtype"
)

// ArgMax: where the largest number is along Attr.Dims dimensions that end at Attr.Axis, as Reduce has them, or with
// Attr.Inverse the smallest: of equal ones the first. The output is I32. No gradient passes through it.
const ArgMax Kind = "argmax"

func init() {
	Register(Op{Kind: ArgMax, Takes: 1, Infer: inferArgMax, Cost: costReduce, Reference: referenceArgMax, Cases: (*CaseList).argMax})
}

func inferArgMax(a Attr, in []Type) ([]Type, error) {
	a.Reduction = ReduceMax
	out, err := inferReduce(a, in)
	if err == nil {
		out[0].DType = dtype.I32
	}
	return out, err
}

func referenceArgMax(c Call, in, out []Array, _ Args) {
	c.lines(func(n, first, count, step int64) {
		best := int64(0)
		for k := int64(1); k < count; k++ {
			x, top := in[0].F[first+k*step], in[0].F[first+best*step]
			if c.Attr.Inverse && x < top || !c.Attr.Inverse && x > top {
				best = k
			}
		}
		out[0].I[n] = int32(best)
	})
}

func (l *CaseList) argMax() {
	for _, least := range []bool{false, true} {
		for axis, dims := range [][]int{{3, 1037}, {5, 19, 33}, {2, 3, 4, 5}} {
			l.Add(fmt.Sprint(dims, " least ", least), ArgMax, Attr{Axis: int64(axis), Inverse: least}, l.X(dims...))
		}
		l.Add(fmt.Sprint("all equal, least ", least), ArgMax, Attr{Dims: 2, Inverse: least, KeepDims: true}, l.Constant(0.5, 7, 70))
	}
}
