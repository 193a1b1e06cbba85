package cuda

import (
	"spillway/dtype"
	"spillway/op"
)

func init() { registerUnaligned(op.Counted, counted) }

// counted prepares the kernel that tells targets which count from ignored ones.
func counted(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	return single(d.line(unitFor("counted", dtype.F32), "counted", d.strideBlocks(n), threads, buffer(0), buffer(1), buffer(2), i64(n), i64(op.IgnoreIndex)))
}
