package op

import (
	"fmt"
	"math"
)

// InverseNorm: 1 over the length of each output's weights in W + Scale·B·A, the
// direction of an adapted weight (DoRA). Outputs are rows of W [out in] with TransB,
// otherwise columns of W [in out]. A length of 0 gives 0.
//
//	operands  W, A [rank in], B [out rank]
//	output    [out]
//
// It is a constant to gradients, as the method defines it.
const InverseNorm Kind = "inverse_norm"

func init() {
	Register(Op{Kind: InverseNorm, Takes: 3, Infer: inferInverseNorm, Cost: costInverseNorm, Reference: referenceInverseNorm, Cases: (*CaseList).inverseNorm})
}

func inferInverseNorm(a Attr, in []Type) ([]Type, error) {
	if err := check(float(in, 0, 1, 2), matrix(in, 0), matrix(in, 1), matrix(in, 2)); err != nil {
		return nil, err
	}
	out, width := adaptedDims(a, in[0])
	if A, B := in[1].Shape, in[2].Shape; A[1] != width || B[0] != out || A[0] != B[1] {
		return nil, fmt.Errorf("%v next to %v and %v: a weight of %d outputs and %d inputs wants [rank %d] and [%d rank]", in[0], in[1], in[2], out, width, width, out)
	}
	if in[0].DType != in[1].DType || in[0].DType != in[2].DType {
		return nil, fmt.Errorf("%v, %v and %v: element types differ", in[0], in[1], in[2])
	}
	return []Type{{in[0].DType, []int64{out}}}, nil
}

// adaptedDims is how many outputs and inputs a weight has.
func adaptedDims(a Attr, w Type) (out, in int64) {
	if a.TransB {
		return w.Shape[0], w.Shape[1]
	}
	return w.Shape[1], w.Shape[0]
}

func costInverseNorm(c Call) Cost {
	return Cost{Flops: 2 * float64(c.In[0].Shape.Elements()) * float64(c.In[1].Shape[0]+1)}
}

func referenceInverseNorm(c Call, in, out []Array, _ Args) {
	outputs, width := adaptedDims(c.Attr, in[0].Type)
	w, rank := strides(c.Attr.TransB, width, outputs), in[1].Type.Shape[0]
	for o := range outputs {
		var sum float64
		for i := range width {
			v := in[0].F[i*w[0]+o*w[1]]
			for r := range rank {
				v += c.Attr.Scale * in[2].F[o*rank+r] * in[1].F[r*width+i]
			}
			sum += v * v
		}
		out[0].F[o] = 0
		if sum > 0 {
			out[0].F[o] = 1 / math.Sqrt(sum)
		}
	}
}

func (l *CaseList) inverseNorm() {
	for _, rank := range []int{1, 5} {
		rows := Attr{TransB: true, Scale: 1.5}
		l.Add(fmt.Sprintf("out in, rank %d", rank), InverseNorm, rows, l.X(7, 33), l.X(rank, 33), l.X(7, rank))
		l.Add(fmt.Sprintf("in out, rank %d", rank), InverseNorm, Attr{Scale: 0.5}, l.X(33, 7), l.X(rank, 33), l.X(7, rank))
	}
	l.Add("zeros", InverseNorm, Attr{TransB: true, Scale: 1}, l.Constant(0, 2, 4), l.Constant(0, 1, 4), l.X(2, 1))
	l.Add("129x257", InverseNorm, Attr{TransB: true, Scale: 2}, l.X(129, 257), l.X(8, 257), l.X(129, 8)).Large = true
}
