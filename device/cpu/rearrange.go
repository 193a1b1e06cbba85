package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	RegisterNative(op.Split, split, nil)
	RegisterNative(op.Concat, concat, nil)
	Register(op.SumRows, sumRows)
}

// split cuts rows into parts, concat joins them: the same walk in two directions. They copy
// bytes, so that they work for any type.
func split(c op.Call, _ int) Program  { return parts(c.Attr, c.In[0], c.Out, 1, 0) }
func concat(c op.Call, _ int) Program { return parts(c.Attr, c.Out[0], c.In, 0, len(c.In)) }

// parts moves between rows of the whole, buffer `whole` of the launch, and parts of
// them, buffers from first on.
func parts(a op.Attr, t op.Type, pieces []op.Type, first, whole int) Program {
	width := t.DType.Bytes(a.Run(t))
	sizes := make([]int64, len(pieces))
	for i, p := range pieces {
		sizes[i] = p.DType.Bytes(a.Run(p))
	}
	var l *device.Launch
	work := rowsOf(t.Shape.Elements()/max(a.Run(t), 1), width/4, func(_, from, to int) {
		all := l.Buffers[whole].Host()
		at := int64(0)
		for i, size := range sizes {
			part := l.Buffers[first+i].Host()
			for n := int64(from); n < int64(to); n++ {
				dst, src := part[n*size:][:size], all[n*width+at:][:size]
				if whole != 0 {
					dst, src = src, dst
				}
				copy(dst, src)
			}
			at += size
		}
	})
	return work.program(0, func(launch *device.Launch) { l = launch })
}

// columns is how many columns a worker sums at a time: a cache line or more of every
// row, and enough pieces for all workers.
const columns = 64

// sumRows adds up rows, a strip of columns per piece, so that the sum of each column has one
// fixed order.
func sumRows(c op.Call, _ int) Program {
	n := int(c.Out[0].Shape.Elements())
	var x, y []float32
	work := &rows{n: n, step: columns, do: func(_, from, to int) {
		if !c.Attr.Accumulate {
			clear(y[from:to])
		}
		for i := 0; i < len(x); i += n {
			kernel.AddScaled(y[from:to], x[i+from:i+to], 1)
		}
	}}
	return work.program(0, func(l *device.Launch) { x, y = F32(l, 0), F32(l, 1) })
}
