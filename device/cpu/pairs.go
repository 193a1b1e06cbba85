package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// isPairs says that a matmul is of bf16 by bf16 on a CPU that multiplies pairs. That never depends on how many
// rows there are, but where sums need no order and few rows are multiplied another way.
func isPairs(c op.Call) bool {
	if !kernel.HasPairs() || c.In[0].DType != dtype.BF16 {
		return false
	}
	if c.Kind == op.QuantizedMatmul {
		return c.Attr.OutlierThreshold == 0 && quant.InterleavedOf(c.In[1].DType) == dtype.BF16
	}
	m, _, k := c.MatMulDims()
	return !(c.Attr.AnyOrder && kernel.HasDots(int(m), int(k), c.Attr.TransA, c.Attr.TransB))
}

// pairMatMul multiplies bf16 by bf16 as they are stored, op.MatMul or op.QuantizedMatmul with an interleaved
// weight.
func pairMatMul(c op.Call, workers int) Program {
	var g *kernel.Pairs
	if c.Kind == op.QuantizedMatmul {
		m, k, n := int(c.In[0].Shape.Rows()), int(c.In[1].Shape[1]), int(c.In[1].Shape[0])
		g = &kernel.Pairs{M: m, N: n, K: k, A: kernel.Matrix{Step: k}, B: interleavedWeight(c.In[1])}
	} else {
		m, n, k := c.MatMulDims()
		g = &kernel.Pairs{M: int(m), N: int(n), K: int(k), Accumulate: c.Attr.Accumulate && !c.Attr.Plus,
			A: kernel.Matrix{Step: int(c.In[0].Shape.Last()), Transposed: c.Attr.TransA},
			B: kernel.Matrix{Step: int(c.In[1].Shape.Last()), Transposed: c.Attr.TransB}}
	}
	biased := 0
	if c.Attr.Bias {
		biased = g.N
	}
	return Program{
		Workspace: bytesOf(biased + g.Workspace(workers)),
		Run: func(p *kernel.Pool, l *device.Launch) {
			g.A.Codes, g.C = view[uint16](l.Buffers[0]), view[uint16](l.Buffers[len(c.In)])
			bindWeight(&g.B, g.N*g.K, l.Buffers[1])
			work := scratch(l)
			g.Work = work[biased:]
			if c.Attr.Bias {
				g.Bias = wideOf(work[:biased], c.In[2].DType, l.Buffers[2])
			}
			if c.Attr.Plus {
				g.Plus = view[uint16](l.Buffers[2])
			}
			g.Run(p)
		},
	}
}
