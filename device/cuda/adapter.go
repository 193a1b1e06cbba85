package cuda

import "spillway/op"

// inverseNorm is 1 over the lengths of adapted weights.
func inverseNorm(d *Device, c op.Call) (program, error) {
	rank, width, out := c.In[1].Shape[0], c.In[1].Shape[1], c.In[2].Shape[0]
	unit, scale := of("norm", c.In[0].DType), f32(c.Attr.Scale)
	if !c.Attr.TransB {
		return just(d.line(unit, "inverseNormColumns", parts(out, threads), threads,
			buffer(0), buffer(1), buffer(2), buffer(3), i64(out), i64(width), i64(rank), scale))
	}
	return just(d.grid(unit, "inverseNormRows", [3]int64{out, 1, 1}, [3]int64{threads, 1, 1}, 4*rank,
		buffer(0), buffer(1), buffer(2), buffer(3), i64(width), i64(rank), scale))
}
