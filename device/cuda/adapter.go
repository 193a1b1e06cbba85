package cuda

import "spillway/op"

func init() {
	register(op.InverseNorm, inverseNorm)
}

// normedAtOnce is how many outputs a block of threads measures, as adapter.cu does.
const normedAtOnce = 8

func inverseNorm(d *Device, c op.Call) (program, error) {
	rank, width, outputs := c.In[1].Shape[0], c.In[1].Shape[1], c.Out[0].Shape[0]
	perOutput, perInput := int64(1), outputs
	if c.Attr.TransB {
		perOutput, perInput = width, 1
	}
	return single(d.line(unitFor("adapter", c.In[0].DType), "inverseNorm", ceilDiv(outputs, normedAtOnce), threads,
		buffer(0), buffer(1), buffer(2), buffer(3), i64(outputs), i64(width), i64(rank), i64(perOutput), i64(perInput), f32(c.Attr.Scale)))
}
