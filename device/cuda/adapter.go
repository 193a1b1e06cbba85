package cuda

import "spillway/op"

func inverseNorm(d *Device, c op.Call) (program, error) {
	outputs, width, rank := c.Out[0].Shape[0], c.In[1].Shape[1], c.In[1].Shape[0]
	return just(d.line(of("adapter", c.In[0].DType), "inverseNorm", outputs, threads,
		buffer(0), buffer(1), buffer(2), buffer(3), i64(outputs), i64(width), i64(rank), f32(c.Attr.Scale), flag(c.Attr.TransB)))
}
