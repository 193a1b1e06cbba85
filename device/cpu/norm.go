package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	RegisterNative(op.RMSNorm, rmsNorm, func(c op.Call) bool { return allWide(c) || normsInParts(c) })
	Register(op.RMSNormGrad, rmsNormGrad)
	Register(op.LayerNorm, layerNorm)
	Register(op.LayerNormGrad, layerNormGrad)
}

func rmsNorm(c op.Call, workers int) Program {
	var x, w, y []float32
	if normsInParts(c) {
		return rmsNormInParts(c, workers)
	}
	return normRows(c, func(l *device.Launch) { x, w, y = F32(l, 0), F32(l, 1), F32(l, 2) },
		func(i, j int) { kernel.RMSNorm(y[i:j], x[i:j], w, c.Attr.Eps) })
}

// normsInParts says that rows and weight of a norm are of one 16-bit type.
func normsInParts(c op.Call) bool {
	of := c.In[0].DType
	return narrow(of) && c.In[1].DType == of && c.Out[0].DType == of
}

// rmsNormInParts is the norm of 16-bit rows: each is widened and rounded in buffers of its worker.
func rmsNormInParts(c op.Call, workers int) Program {
	width := int(c.In[1].Shape[0])
	rows := op.Call{In: c.In[:1], Out: c.Out}
	b, w := newPartBuffers(rows, workers, width), make([]float32, width)
	norm := func(v [][]float32) { kernel.RMSNorm(v[1], v[0], w, c.Attr.Eps) }
	work := rowsOf(c.In[0].Shape.Elements()/int64(width), int64(width), func(worker, from, to int) {
		for i := from * width; i < to*width; i += width {
			b.compute(worker, i, i+width, norm)
		}
	})
	return work.program(0, func(l *device.Launch) {
		b.whole[0], b.whole[1] = view[uint16](l.Buffers[0]), view[uint16](l.Buffers[2])
		c.In[1].DType.Widen(w, view[uint16](l.Buffers[1]))
	})
}

func layerNorm(c op.Call, _ int) Program {
	var x, w, b, y []float32
	set := func(l *device.Launch) {
		x, w, y = F32(l, 0), F32(l, 1), F32(l, len(c.In))
		if c.Attr.Bias {
			b = F32(l, 2)
		}
	}
	return normRows(c, set, func(i, j int) { kernel.LayerNorm(y[i:j], x[i:j], w, b, c.Attr.Eps) })
}

// normRows makes a program that works on each group of len(w) elements, from i to j,
// by itself.
func normRows(c op.Call, set func(l *device.Launch), do func(i, j int)) Program {
	width := int(c.In[1].Shape[0])
	work := rowsOf(c.In[0].Shape.Elements()/int64(width), int64(width), func(_, from, to int) {
		for i := from * width; i < to*width; i += width {
			do(i, i+width)
		}
	})
	return work.program(0, set)
}

func rmsNormGrad(c op.Call, _ int) Program {
	return normGrad(c, 1, func(dx []float32, sums [2][]float32, x, w, dy []float32) {
		kernel.RMSNormGrad(dx, sums[0], x, w, dy, c.Attr.Eps)
	})
}

func layerNormGrad(c op.Call, _ int) Program {
	sums := 1
	if c.Attr.Bias {
		sums = 2
	}
	return normGrad(c, sums, func(dx []float32, sums [2][]float32, x, w, dy []float32) {
		kernel.LayerNormGrad(dx, sums[0], sums[1], x, w, dy, c.Attr.Eps)
	})
}

// normBlocks is how many parts the rows are cut into for the gradients of the
// weights: each part sums its rows, and the parts are then added in order, so that
// the sum does not depend on who computed what.
const normBlocks = 64

// normGrad makes the gradient of a norm: row computes dx of one group and adds to the
// sums over rows, which are nil when the weights are frozen.
func normGrad(c op.Call, sums int, row func(dx []float32, sums [2][]float32, x, w, dy []float32)) Program {
	if c.Attr.InputOnly {
		sums = 0
	}
	width := int(c.In[1].Shape[0])
	groups := int(c.In[0].Shape.Elements()) / width
	step := (groups + normBlocks - 1) / normBlocks
	var x, w, dy, dx, partial []float32
	work := &rows{n: groups, step: step, do: func(_, from, to int) {
		var own [2][]float32
		for s := range sums {
			own[s] = partial[(s*normBlocks+from/step)*width:][:width]
			clear(own[s])
		}
		for i := from * width; i < to*width; i += width {
			row(dx[i:i+width], own, x[i:i+width], w, dy[i:i+width])
		}
	}}
	return Program{
		Workspace: bytesOf(sums * normBlocks * width),
		Run: func(p *kernel.Pool, l *device.Launch) {
			x, w, dy, dx, partial = F32(l, 0), F32(l, 1), F32(l, 2), F32(l, 3), scratch(l)
			work.start(p)
			for s := range sums {
				dst := F32(l, 4+s)
				if !c.Attr.Accumulate {
					clear(dst)
				}
				for b := range work.pieces() {
					kernel.AddScaled(dst, partial[(s*normBlocks+b)*width:], 1)
				}
			}
		},
	}
}
