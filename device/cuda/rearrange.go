package cuda

import (
	"cmp"

	"spillway/dtype"
	"spillway/op"
)

func init() {
	register(op.Split, split)
	register(op.Concat, concat)
}

// columns copies a block of columns, of integers too; steps, offsets and width are in elements.
func (d *Device) columns(t dtype.Type, src, dst int, srcAt, srcStep, dstAt, dstStep, rows, width int64) (*kernelLaunch, error) {
	name, lane := "columnsWide", elementsPerLoad(t)
	for _, n := range []int64{srcAt, srcStep, dstAt, dstStep, width} {
		if n%lane != 0 {
			name, lane = "columnsOne", 1
		}
	}
	return d.line(plainUnit("rearrange", t), name, d.strideBlocks(rows*width/lane), threads,
		bufferAt(src, t.Bytes(srcAt)), i64(srcStep), bufferAt(dst, t.Bytes(dstAt)), i64(dstStep), i64(rows), i64(width))
}

func split(d *Device, c op.Call) (p program, err error) {
	var from int64
	step := c.Attr.Run(c.In[0])
	rows := c.In[0].Shape.Elements() / step
	for i, t := range c.Out {
		size := c.Attr.Run(t)
		err = cmp.Or(err, p.add(d.columns(c.In[0].DType, 0, 1+i, from, step, 0, size, rows, size)))
		from += size
	}
	return p, err
}

func concat(d *Device, c op.Call) (p program, err error) {
	var to int64
	step := c.Attr.Run(c.Out[0])
	rows := c.Out[0].Shape.Elements() / step
	for i, t := range c.In {
		size := c.Attr.Run(t)
		err = cmp.Or(err, p.add(d.columns(t.DType, i, len(c.In), 0, size, to, step, rows, size)))
		to += size
	}
	return p, err
}
