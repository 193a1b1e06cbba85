package op

import (
	"fmt"

	"spillway/shape"
)

// MatMul: C = op(A)·op(B) (+ bias, or + D), op(X) being X or its transpose. Operands with
// more than two dimensions count as rows of their last one, a vector as one row.
//
//	operands  A [.. K] (TransA: [.. M], rows are K), B [.. N] (TransB: [N K]), then bias [N]
//	          with Attr.Bias, or D like the output with Attr.Plus
//	output    [outer(A) N], or [M N] with TransA
//
// A linear layer is TransB with W [out in]; its gradients are dy·W and dyᵀ·x.
func inferMatMul(a Attr, in []Type) ([]Type, error) {
	want := 2
	if a.Bias || a.Plus {
		want = 3
	}
	if err := arity(in, want); err != nil {
		return nil, err
	}
	if err := check(float(in, 0, 1), rank(in, 0, 1), rank(in, 1, 1)); err != nil {
		return nil, err
	}
	m, ka, n, kb := matMulDims(a, in)
	if ka != kb {
		return nil, fmt.Errorf("%v times %v: inner dimensions %d and %d differ", in[0], in[1], ka, kb)
	}
	if in[0].DType != in[1].DType {
		return nil, fmt.Errorf("%v times %v: element types differ", in[0], in[1])
	}
	if a.Bias {
		if err := check(float(in, 2), vector(in, 2, n)); err != nil {
			return nil, err
		}
	}
	out := Type{in[0].DType, shape.Shape{m, n}}
	if !a.TransA {
		out.Shape = in[0].Shape.WithLast(n)
	}
	if a.Plus && (a.Bias || !in[2].Equal(out)) {
		return nil, fmt.Errorf("%v is added to %v, want the same type and no bias beside it", in[2], out)
	}
	return []Type{out}, nil
}

// matMulAccumulates: what is added to one thing is not added to another.
func matMulAccumulates(a Attr) []int {
	if a.Plus {
		return nil
	}
	return []int{0}
}

func matMulDims(a Attr, in []Type) (m, ka, n, kb int64) {
	m, ka = in[0].Shape.Rows(), in[0].Shape.Last()
	if a.TransA {
		m, ka = ka, m
	}
	kb, n = in[1].Shape.Rows(), in[1].Shape.Last()
	if a.TransB {
		kb, n = n, kb
	}
	return m, ka, n, kb
}

// MatMulDims gives M, N, K of a matrix product.
func (c Call) MatMulDims() (m, n, k int64) {
	m, k, n, _ = matMulDims(c.Attr, c.In)
	return m, n, k
}

func costMatMul(c Call) Cost {
	m, n, k := c.MatMulDims()
	return Cost{Flops: 2 * float64(m) * float64(n) * float64(k), Matrix: true}
}

func referenceMatMul(c Call, in, out []Array, _ Args) {
	m, n, k := c.MatMulDims()
	a, b := strides(c.Attr.TransA, m, k), strides(c.Attr.TransB, k, n)
	for i := range m {
		for j := range n {
			var sum float64
			for l := range k {
				sum += in[0].F[i*a[0]+l*a[1]] * in[1].F[l*b[0]+j*b[1]]
			}
			if c.Attr.Bias {
				sum += in[2].F[j]
			}
			if c.Attr.Plus {
				sum += in[2].F[i*n+j]
			}
			out[0].F[i*n+j] = sum
		}
	}
}

// strides of a matrix of rows × columns, stored as its transpose if trans.
func strides(trans bool, rows, columns int64) [2]int64 {
	if trans {
		return [2]int64{1, rows}
	}
	return [2]int64{columns, 1}
}
