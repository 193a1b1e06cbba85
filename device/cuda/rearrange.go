package cuda

import (
	"spillway/dtype"
	"spillway/op"
)

// columns copies a block of columns; steps, offsets and width are in elements.
func (d *Device) columns(t dtype.Type, src, dst int, srcAt, srcStep, dstAt, dstStep, rows, width int64) (step, error) {
	name, lane := "columnsWide", lanes(t)
	for _, n := range []int64{srcAt, srcStep, dstAt, dstStep, width} {
		if n%lane != 0 {
			name, lane = "columnsOne", 1
		}
	}
	return d.line(of("rearrange", t), name, d.stride(rows*width/lane), threads,
		at(src, t.Bytes(srcAt)), i64(srcStep), at(dst, t.Bytes(dstAt)), i64(dstStep), i64(rows), i64(width))
}

func split(d *Device, c op.Call) (p program, err error) {
	var from int64
	rows, step := c.In[0].Shape.Rows(), c.In[0].Shape.Last()
	for i, size := range c.Attr.Sizes {
		s, err := d.columns(c.In[0].DType, 0, 1+i, from, step, 0, size, rows, size)
		if err != nil {
			return p, err
		}
		p.steps, from = append(p.steps, s), from+size
	}
	return p, nil
}

func concat(d *Device, c op.Call) (p program, err error) {
	var to int64
	rows, step := c.Out[0].Shape.Rows(), c.Out[0].Shape.Last()
	for i, t := range c.In {
		size := t.Shape.Last()
		s, err := d.columns(t.DType, i, len(c.In), 0, size, to, step, rows, size)
		if err != nil {
			return p, err
		}
		p.steps, to = append(p.steps, s), to+size
	}
	return p, nil
}
