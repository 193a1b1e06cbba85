package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	RegisterNative(op.Embedding, embedding, nil)
	Register(op.EmbeddingGrad, embeddingGrad)
}

// row is the row of a table for an id, which was looked at before the launch.
func row[E any](table []E, id int32, width int) []E { return table[int(id)*width:][:width] }

// embedding copies rows of the table, whatever their type.
func embedding(c op.Call, _ int) Program {
	width := int(c.In[1].DType.Bytes(c.In[1].Shape.Last()))
	var which []int32
	var table, y []byte
	work := rowsOf(c.In[0].Shape.Elements(), int64(width)/4, func(_, from, to int) {
		for n := from; n < to; n++ {
			copy(y[n*width:][:width], row(table, which[n], width))
		}
	})
	return work.program(0, func(l *device.Launch) { which, table, y = ids(l, 0), l.Buffers[1].Host(), l.Buffers[2].Host() })
}

// embeddingGrad adds the rows of dy to the rows of the table their ids name. A piece
// is a strip of columns, which walks all positions in order.
func embeddingGrad(c op.Call, _ int) Program {
	width := int(c.In[1].Shape.Last())
	var which []int32
	var dy, table []float32
	zero := rowsOf(c.Out[0].Shape.Elements(), 1, func(_, from, to int) { clear(table[from:to]) })
	work := &rows{n: width, step: columns, do: func(_, from, to int) {
		for n, id := range which {
			kernel.AddScaled(row(table, id, width)[from:to], dy[n*width+from:n*width+to], 1)
		}
	}}
	return Program{Run: func(p *kernel.Pool, l *device.Launch) {
		which, dy, table = ids(l, 0), F32(l, 1), F32(l, 2)
		if !c.Attr.Accumulate {
			zero.start(p)
		}
		work.start(p)
	}}
}
