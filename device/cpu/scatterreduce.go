package cpu

import (
	"spillway/device"
	"spillway/op"
)

func init() { Register(op.ScatterReduce, scatterReduce) }

// scatterReduce goes through what is scattered in order, a part of the outer dimensions per piece.
func scatterReduce(c op.Call, _ int) Program {
	_, n, _ := c.In[0].Shape.Around(c.Attr.Axis, 1)
	outer, m, inner := c.In[1].Shape.Around(c.Attr.Axis, 1)
	var x, z, y []float32
	var at []int32
	work := rowsOf(outer, max(n, m)*inner, func(_, from, to int) {
		copy(y[int64(from)*n*inner:int64(to)*n*inner], x[int64(from)*n*inner:])
		for i := int64(from) * m * inner; i < int64(to)*m*inner; i++ {
			place := &y[(i/(m*inner)*n+int64(at[i]))*inner+i%inner]
			if c.Attr.Reduction == op.ReduceMin {
				*place = min(*place, z[i])
			} else {
				*place = max(*place, z[i])
			}
		}
	})
	return work.program(0, func(l *device.Launch) { x, at, z, y = F32(l, 0), ids(l, 1), F32(l, 2), F32(l, 3) })
}
