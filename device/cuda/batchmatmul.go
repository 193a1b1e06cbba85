package cuda

import (
	"spillway/device/cuda/driver"
	"spillway/op"
)

// batchMatMul is strided batches of cuBLASLt, one for each run of matrices that lie evenly apart: mostly one in all,
// more only where both operands are repeated. Where it has no algorithm our plain kernel takes their place.
func batchMatMul(d *Device, c op.Call) (p program, err error) {
	m, n, k := c.BatchMatMulDims()
	if k == 0 {
		return p, unsupported("an inner dimension of 0 is not handled")
	}
	w, t := c.BatchWalk(), c.In[0].DType
	last := len(w.Dims) - 1
	x := matmulArgs{m: m, n: n, k: k,
		a:     matrix{buffer(0), t, c.In[0].Shape.Last(), c.Attr.TransA},
		b:     matrix{buffer(1), t, c.In[1].Shape.Last(), c.Attr.TransB},
		c:     matrix{buffer(2), t, n, false},
		batch: driver.Batch{Count: w.Dims[last], A: w.Strides[1][last], B: w.Strides[0][last], D: w.Strides[2][last]},
	}
	blas, even := (*gemm)(nil), true
	at := make([]int64, 3)
	for row := range w.Rows() { // algorithms are asked for that take operands at multiples of 16 bytes
		w.Row(row, at)
		even = even && t.Bytes(at[0])%16 == 0 && t.Bytes(at[1])%16 == 0 && t.Bytes(at[2])%16 == 0
	}
	if even && !c.Attr.Exact { // algorithms follow from the number of rows
		if blas, err = d.tryBLAS(x); err != nil {
			return p, err
		}
	}
	for row := range w.Rows() {
		w.Row(row, at)
		one := x
		one.a.at, one.b.at, one.c.at = bufferAt(0, t.Bytes(at[0])), bufferAt(1, t.Bytes(at[1])), bufferAt(2, t.Bytes(at[2]))
		if blas == nil {
			err = p.add(d.plainBatch(one))
		} else {
			p.actions = append(p.actions, &gemm{device: d, prepared: blas.prepared, a: one.a.at, b: one.b.at, c: one.c.at, plus: one.c.at, scratch: blas.scratch})
			p.workspace = blas.prepared.Algorithm.Workspace
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// plainBatch prepares our own kernel.
func (d *Device) plainBatch(x matmulArgs) (*kernelLaunch, error) {
	a, b := strides(x.a), strides(x.b)
	return d.grid(unitFor("product", x.a.element), "productBatch", [3]int64{ceilDiv(x.n, 16), ceilDiv(x.m, 16), min(x.batch.Count, 1<<16-1)}, [3]int64{16, 16, 1}, 0,
		x.a.at, x.b.at, x.c.at, i64(x.batch.Count), i64(x.m), i64(x.n), i64(x.k), a[0], a[1], b[0], b[1], i64(x.batch.B), i64(x.batch.A), i64(x.batch.D))
}
