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
const MatMul Kind = "matmul"

func init() {
	Register(Op{Kind: MatMul, Infer: inferMatMul, Cost: costMatMul, Accumulates: matMulAccumulates, Reference: referenceMatMul,
		Sizes: func(c Call) [3]int64 {
			m, n, k := c.MatMulDims()
			return [3]int64{m, n, k}
		},
		Cases: (*CaseList).matMul})
}

func inferMatMul(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 2, a.Bias || a.Plus); err != nil {
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
		return nil, fmt.Errorf("%v times %v: element types differ; cast one of them", in[0], in[1])
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
		return nil, fmt.Errorf("%v is added to %v, want the same type and no bias next to it", in[2], out)
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

// MatMulDims gives M, N, K of a matmul.
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

func (l *CaseList) matMul() {
	for _, trans := range []Attr{{}, {TransB: true}, {TransA: true}, {TransA: true, TransB: true}} {
		a, b := [2]int{5, 7}, [2]int{7, 3}
		if trans.TransA {
			a = [2]int{7, 5}
		}
		if trans.TransB {
			b = [2]int{3, 7}
		}
		l.Both(fmt.Sprintf("5x3x7 %v %v", trans.TransA, trans.TransB), MatMul, trans, l.X(a[0], a[1]), l.X(b[0], b[1]))
	}
	l.Add("1x1x1", MatMul, Attr{}, l.X(1, 1), l.X(1, 1))
	l.Add("1 row", MatMul, Attr{TransB: true}, l.X(1, 64), l.X(33, 64))
	l.Add("1 row of a weight", MatMul, Attr{TransB: true, Constant: true}, l.X(1, 1, 192), l.X(50, 192))
	l.Add("3 rows of a weight, plus", MatMul, Attr{TransB: true, Constant: true, Plus: true}, l.X(1, 3, 640), l.X(40, 640), l.X(1, 3, 40))
	l.Add("4 rows of a weight, bias", MatMul, Attr{TransB: true, Constant: true, Bias: true}, l.X(1, 4, 72), l.X(16, 72), l.X(16))
	l.Add("1 column", MatMul, Attr{TransB: true}, l.X(19, 17), l.X(1, 17))
	l.Add("outer product", MatMul, Attr{}, l.X(9, 1), l.X(1, 35))
	l.Add("vector", MatMul, Attr{TransB: true}, l.X(6), l.X(4, 6))
	l.Add("linear bias", MatMul, Attr{TransB: true, Bias: true}, l.X(2, 3, 5), l.X(4, 5), l.X(4))
	l.Add("conv1d bias", MatMul, Attr{Bias: true}, l.X(2, 3, 5), l.X(5, 4), l.X(4))
	l.Both("weight gradient", MatMul, Attr{TransA: true}, l.X(2, 3, 5), l.X(2, 3, 4))
	l.Both("bias", MatMul, Attr{TransB: true, Bias: true}, l.X(5, 8), l.X(16, 8), l.X(16))
	l.Add("plus", MatMul, Attr{TransB: true, Plus: true}, l.X(2, 3, 5), l.X(4, 5), l.X(2, 3, 4))
	l.Add("plus transposed", MatMul, Attr{TransA: true, Plus: true}, l.X(7, 5), l.X(7, 3), l.X(5, 3))
	l.Add("300x520x16 plus", MatMul, Attr{TransB: true, Plus: true}, l.X(300, 16), l.X(520, 16), l.X(300, 520))
	l.Add("129x65x257", MatMul, Attr{TransB: true}, l.X(129, 257), l.X(65, 257)).Large = true
	l.Add("129x65x257 in out", MatMul, Attr{}, l.X(129, 257), l.X(257, 65)).Large = true
	l.Add("257x65x129 weight gradient", MatMul, Attr{TransA: true, Accumulate: true}, l.X(129, 257), l.X(129, 65)).Large = true
	l.Add("64x96x1024", MatMul, Attr{TransB: true, Bias: true}, l.X(64, 1024), l.X(96, 1024), l.X(96)).Large = true
}
