package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() { Register(op.BatchMatMul, batchMatMul) }

func batchMatMul(c op.Call, workers int) Program {
	m, n, k := c.BatchMatMulDims()
	g := &kernel.GemmBatch{Gemm: kernel.Gemm{
		M: int(m), N: int(n), K: int(k), CStep: int(n),
		A: kernel.Matrix{Step: int(c.In[0].Shape.Last()), Transposed: c.Attr.TransA},
		B: kernel.Matrix{Step: int(c.In[1].Shape.Last()), Transposed: c.Attr.TransB},
	}}
	c.BatchWalk().Each(func(at []int64) { g.At = append(g.At, [3]int{int(at[0]), int(at[1]), int(at[2])}) })
	return Program{
		Workspace: bytesOf(g.Workspace(workers)),
		Run: func(p *kernel.Pool, l *device.Launch) {
			g.Left, g.Right, g.Out, g.Work = F32(l, 0), F32(l, 1), F32(l, 2), scratch(l)
			g.Run(p)
		},
	}
}
