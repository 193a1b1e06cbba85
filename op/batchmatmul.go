package op

import (
	"fmt"
	"slices"

	"spillway/shape"
)

// BatchMatMul: C = op(A)·op(B) of each pair of matrices, op(X) being X or its transpose. The last
// two dimensions are matrices; those before are batches, which broadcast.
//
//	operands  A [.. M K] (TransA: [.. K M]), B [.. K N] (TransB: [.. N K])
//	output    [.. M N]
const BatchMatMul Kind = "batch_matmul"

func init() {
	Register(Op{Kind: BatchMatMul, Takes: 2, Infer: inferBatchMatMul, Cost: costBatchMatMul, Reference: referenceBatchMatMul, Cases: (*CaseList).batchMatMul})
}

func inferBatchMatMul(a Attr, in []Type) ([]Type, error) {
	if err := check(float(in, 0, 1), rank(in, 0, 2), rank(in, 1, 2)); err != nil {
		return nil, err
	}
	m, ka := matrixDims(in[0].Shape, a.TransA)
	kb, n := matrixDims(in[1].Shape, a.TransB)
	if ka != kb {
		return nil, fmt.Errorf("%v times %v: inner dimensions %d and %d differ", in[0], in[1], ka, kb)
	}
	if in[0].DType != in[1].DType {
		return nil, fmt.Errorf("%v times %v: element types differ; cast one of them", in[0], in[1])
	}
	batch, err := shape.Broadcast(batchOf(in[0].Shape), batchOf(in[1].Shape))
	if err != nil {
		return nil, fmt.Errorf("batches of %v and %v: %w", in[0], in[1], err)
	}
	out := append(batch, m, n)
	if len(out) > maxRank {
		return nil, fmt.Errorf("%v has %d dimensions, %d is the most", out, len(out), maxRank)
	}
	return []Type{{in[0].DType, out}}, nil
}

// batchOf are the dimensions before the matrices.
func batchOf(s shape.Shape) shape.Shape { return s[:len(s)-2] }

// matrixDims are rows and columns of op(X).
func matrixDims(s shape.Shape, trans bool) (rows, columns int64) {
	rows, columns = s[len(s)-2], s[len(s)-1]
	if trans {
		return columns, rows
	}
	return rows, columns
}

// BatchMatMulDims gives M, N, K of each matmul of a batch.
func (c Call) BatchMatMulDims() (m, n, k int64) {
	m, k = matrixDims(c.In[0].Shape, c.Attr.TransA)
	_, n = matrixDims(c.In[1].Shape, c.Attr.TransB)
	return m, n, k
}

// BatchWalk goes over the matrices of A, B and C of a batched matmul; strides are in elements.
func (c Call) BatchWalk() shape.Walk {
	m, n, k := c.BatchMatMulDims()
	w := shape.BroadcastWalk(batchOf(c.Out[0].Shape), batchOf(c.In[0].Shape), batchOf(c.In[1].Shape), batchOf(c.Out[0].Shape))
	for t, size := range []int64{m * k, k * n, m * n} {
		for i := range w.Strides[t] {
			w.Strides[t][i] *= size
		}
	}
	return w
}

func costBatchMatMul(c Call) Cost {
	_, _, k := c.BatchMatMulDims()
	return Cost{Flops: 2 * float64(c.Out[0].Shape.Elements()) * float64(k), Matrix: true}
}

func referenceBatchMatMul(c Call, in, out []Array, _ Args) {
	m, n, k := c.BatchMatMulDims()
	a, b := strides(c.Attr.TransA, m, k), strides(c.Attr.TransB, k, n)
	c.BatchWalk().Each(func(at []int64) {
		x, y, z := in[0].F[at[0]:], in[1].F[at[1]:], out[0].F[at[2]:]
		for i := range m {
			for j := range n {
				var sum float64
				for l := range k {
					sum += x[i*a[0]+l*a[1]] * y[l*b[0]+j*b[1]]
				}
				z[i*n+j] = sum
			}
		}
	})
}

func (l *CaseList) batchMatMul() {
	for _, trans := range []Attr{{}, {TransB: true}, {TransA: true}, {TransA: true, TransB: true}} {
		a, b := []int{5, 7}, []int{7, 3}
		if trans.TransA {
			a = []int{7, 5}
		}
		if trans.TransB {
			b = []int{3, 7}
		}
		for _, batch := range [][2][]int{{{2}, {2}}, {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{}, {4}}, {{2, 1}, {1, 3}}, {{2, 1, 2}, {3, 1}}} {
			l.Add(fmt.Sprint(batch, trans.TransA, trans.TransB), BatchMatMul, trans, l.X(slices.Concat(batch[0], a)...), l.X(slices.Concat(batch[1], b)...))
		}
	}
	l.Add("1x1x1", BatchMatMul, Attr{}, l.X(1, 1, 1), l.X(1, 1, 1))
	l.Add("one matrix", BatchMatMul, Attr{}, l.X(3, 4), l.X(4, 2))
	l.Add("1 row", BatchMatMul, Attr{TransB: true}, l.X(6, 1, 24), l.X(6, 9, 24))
	l.Add("outer product", BatchMatMul, Attr{}, l.X(3, 9, 1), l.X(3, 1, 35))
	l.Add("exact", BatchMatMul, Attr{Exact: true}, l.X(2, 3, 8), l.X(2, 8, 16))
	l.Add("64 heads", BatchMatMul, Attr{TransB: true}, l.X(4, 16, 33, 20), l.X(4, 16, 17, 20)).Large = true
	l.Add("2 of 129x65x257", BatchMatMul, Attr{TransB: true}, l.X(2, 129, 257), l.X(2, 65, 257)).Large = true
	l.Add("shared by 3", BatchMatMul, Attr{TransA: true}, l.X(64, 96), l.X(3, 64, 72)).Large = true
}
