package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	Register(op.Rope, rope)
	Register(op.Attention, attention)
	Register(op.AttentionGrad, attentionGrad)
	Register(op.AttentionMaskGrad, attentionMaskGrad)
}

// rope rotates pairs of each head by angles that depend on the position. The angles are
// computed once per position, for all heads and all sequences that have it at the same index.
func rope(c op.Call, workers int) Program {
	heads, half := int(c.Attr.Heads), int(c.In[2].Shape[0])
	in := c.In[0].Shape
	width, places := int(in.Last()), int(in[len(in)-2])
	samples := int(in.Rows()) / max(places, 1)
	factor := c.Attr.Scale
	if factor == 0 {
		factor = 1
	}
	var x, freq, y, angles []float32
	var positions []int32
	work := rowsOf(int64(places), int64(samples*width), func(worker, from, to int) {
		cos, sin := angles[2*worker*half:][:half], angles[(2*worker+1)*half:][:half]
		for t := from; t < to; t++ {
			for n := t; n < samples*places; n += places {
				if n == t || positions[n] != positions[n-places] {
					kernel.Angles(cos, sin, freq, positions[n], factor, c.Attr.Inverse)
				}
				kernel.Rotate(y[n*width:][:width], x[n*width:][:width], cos, sin, heads)
			}
		}
	})
	return work.program(bytesOf(2*workers*half), func(l *device.Launch) {
		x, positions, freq, y, angles = F32(l, 0), ids(l, 1), F32(l, 2), F32(l, 3), scratch(l)
	})
}

func attention(c op.Call, workers int) Program {
	a := newAttention(c)
	masks := maskSetter(c, a, 3)
	return Program{
		Workspace: bytesOf(a.Workspace(workers)),
		Run: func(p *kernel.Pool, l *device.Launch) {
			a.Q, a.K, a.V = F32(l, 0), F32(l, 1), F32(l, 2)
			a.O, a.LSE, a.Work = F32(l, len(c.In)), F32(l, len(c.In)+1), scratch(l)
			masks(l)
			a.Forward(p)
		},
	}
}

func attentionGrad(c op.Call, workers int) Program {
	g := &kernel.AttentionGrad{Attention: *newAttention(c)}
	masks := maskSetter(c, &g.Attention, 6)
	return Program{
		Workspace: bytesOf(g.Workspace(workers)),
		Run: func(p *kernel.Pool, l *device.Launch) {
			g.Q, g.K, g.V, g.O, g.LSE, g.DO = F32(l, 0), F32(l, 1), F32(l, 2), F32(l, 3), F32(l, 4), F32(l, 5)
			n := len(c.In)
			g.DQ, g.DK, g.DV, g.Work = F32(l, n), F32(l, n+1), F32(l, n+2), scratch(l)
			masks(l)
			g.Backward(p)
		},
	}
}

func attentionMaskGrad(c op.Call, workers int) Program {
	g := &kernel.AttentionMaskGrad{AttentionGrad: kernel.AttentionGrad{Attention: *newAttention(c)}}
	masks := maskSetter(c, &g.Attention, 6)
	return Program{
		Workspace: bytesOf(g.Workspace(workers)),
		Run: func(p *kernel.Pool, l *device.Launch) {
			g.Q, g.K, g.V, g.O, g.LSE, g.DO = F32(l, 0), F32(l, 1), F32(l, 2), F32(l, 3), F32(l, 4), F32(l, 5)
			g.DMask, g.Work = F32(l, len(c.In)), scratch(l)
			masks(l)
			g.Backward(p)
		},
	}
}

func newAttention(c op.Call) *kernel.Attention {
	q, k := c.In[0].Shape, c.In[1].Shape
	return &kernel.Attention{
		B: int(q[0]), T: int(q[1]), S: int(k[1]), D: int(q[2] / c.Attr.Heads),
		Heads: int(c.Attr.Heads), KVHeads: int(c.Attr.KVHeads),
		Scale: float32(c.Attr.Scale), Causal: c.Attr.Causal, Window: int(c.Attr.Window),
	}
}

// maskSetter gives a function that sets the optional operands of a launch, which start at
// operand first, and its random stream.
func maskSetter(c op.Call, a *kernel.Attention, first int) func(l *device.Launch) {
	if c.Attr.Prob > 0 {
		a.Dropout = kernel.NewWeightDropout(c.Attr.Prob)
	}
	if c.Attr.Mask {
		sample, head := c.In[len(c.In)-1].MaskSteps()
		a.MaskSample, a.MaskHead = int(sample), int(head)
	}
	perSample := uint64(a.Heads) * uint64(a.T)
	return func(l *device.Launch) {
		next := first
		if c.Attr.Segments {
			a.Segments = ids(l, next)
			next++
		}
		if c.Attr.KeyMask {
			a.KeyMask = ids(l, next)
			next++
		}
		if c.Attr.Mask {
			a.Mask = F32(l, next)
		}
		if a.Dropout != nil {
			args := argsOf(l)
			a.Dropout.Start(op.NewStream(args.Key, c.Attr.Stream), args.Row*perSample)
		}
	}
}
