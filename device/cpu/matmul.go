package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	RegisterNative(op.MatMul, matMul, func(c op.Call) bool {
		return isPairs(c) || !hasNarrow(c.In[:1]) && !hasNarrow(c.In[2:]) && !hasNarrow(c.Out)
	})
}

// bytesOf is the size of n elements of scratch memory.
func bytesOf(elements int) int64 { return 4 * int64(elements) }

// matMul reads a second operand of a 16-bit type as it is stored.
func matMul(c op.Call, workers int) Program {
	if isPairs(c) {
		return pairMatMul(c, workers)
	}
	m, n, k := c.MatMulDims()
	g := &kernel.Gemm{
		M: int(m), N: int(n), K: int(k), CStep: int(n), Accumulate: c.Attr.Accumulate && !c.Attr.Plus, AnyOrder: c.Attr.AnyOrder,
		A: kernel.Matrix{Step: int(c.In[0].Shape.Last()), Transposed: c.Attr.TransA},
		B: kernel.Matrix{Step: int(c.In[1].Shape.Last()), Transposed: c.Attr.TransB},
	}
	if narrow(c.In[1].DType) {
		g.B.Type = c.In[1].DType
	}
	return Program{
		Workspace: bytesOf(g.Workspace(workers)),
		Run: func(p *kernel.Pool, l *device.Launch) {
			g.A.Data, g.C, g.Work = F32(l, 0), F32(l, len(c.In)), scratch(l)
			if narrow(c.In[1].DType) {
				g.B.Codes = view[uint16](l.Buffers[1])
			} else {
				g.B.Data = F32(l, 1)
			}
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
