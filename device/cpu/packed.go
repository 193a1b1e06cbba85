package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
)

// isPacked says that a quantized matmul is computed with integers: its weight has a type that is
// interleaved for that, and inputs have 16 bits, which integers of 16 bits hold better than the
// outputs hold the result. In f32 such a weight is decoded.
func isPacked(c op.Call) bool {
	return narrow(c.In[0].DType) && c.Attr.OutlierThreshold == 0 && kernel.PackedFormatOf(c.In[1].DType) != nil
}

// packedMatmul multiplies 16-bit inputs by an interleaved weight.
func packedMatmul(c op.Call, workers int) Program {
	m, n, k := int(c.In[0].Shape.Rows()), int(c.In[1].Shape[0]), int(c.In[1].Shape[1])
	g := &kernel.Packed{M: m, N: n, K: k, Format: kernel.PackedFormatOf(c.In[1].DType)}
	kind := c.In[0].DType
	var x, y []uint16
	widen := rowsOf(int64(m*k), 1, func(_, i, j int) { kind.Widen(g.X[i:j], x[i:j]) })
	shorten := rowsOf(int64(m*n), 1, func(_, i, j int) { kind.Narrow(y[i:j], g.C[i:j]) })
	biased := 0
	if c.Attr.Bias {
		biased = n
	}
	return Program{Workspace: bytesOf(m*k + m*n + biased + g.Workspace(workers)), Run: func(p *kernel.Pool, l *device.Launch) {
		work := scratch(l)
		take := func(n int) []float32 {
			part := work[:n]
			work = work[n:]
			return part
		}
		g.X, g.C, g.Bias, g.W = take(m*k), take(m*n), nil, l.Buffers[1].Host()
		if c.Attr.Bias {
			g.Bias = wideOf(take(n), c.In[2].DType, l.Buffers[2])
		}
		g.Work = work
		x, y = view[uint16](l.Buffers[0]), view[uint16](l.Buffers[len(c.In)])
		widen.start(p)
		g.Run(p)
		shorten.start(p)
	}}
}

// wideOf is a buffer in f32, in dst where it is of another type.
func wideOf(dst []float32, t dtype.Type, b device.Buffer) []float32 {
	if t == dtype.F32 {
		return view[float32](b)
	}
	t.Widen(dst, view[uint16](b))
	return dst
}
