package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	Register(op.MatMul, matMul)
}

// bytesOf is the size of n elements of scratch memory.
func bytesOf(elements int) int64 { return 4 * int64(elements) }

func matMul(c op.Call, workers int) Program {
	m, n, k := c.MatMulDims()
	g := &kernel.Gemm{
		M: int(m), N: int(n), K: int(k), CStep: int(n), Accumulate: c.Attr.Accumulate && !c.Attr.Plus,
		A: kernel.Matrix{Step: int(c.In[0].Shape.Last()), Transposed: c.Attr.TransA},
		B: kernel.Matrix{Step: int(c.In[1].Shape.Last()), Transposed: c.Attr.TransB},
	}
	return Program{
		Workspace: bytesOf(g.Workspace(workers)),
		Run: func(p *kernel.Pool, l *device.Launch) {
			g.A.Data, g.B.Data, g.C, g.Work = F32(l, 0), F32(l, 1), F32(l, len(c.In)), scratch(l)
			if c.Attr.Bias {
				g.Bias = F32(l, 2)
			}
			if c.Attr.Plus {
				g.Plus = F32(l, 2)
			}
			g.Run(p)
		},
	}
}
