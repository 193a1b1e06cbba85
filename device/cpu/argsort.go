package cpu

import (
	"slices"

	"spillway/device"
	"spillway/op"
)

func init() { Register(op.ArgSort, argSort) }

// argSort orders the places of each row by its numbers, and equal ones by place.
func argSort(c op.Call, _ int) Program {
	n := int(c.In[0].Shape.Last())
	var x []float32
	var y []int32
	work := rowsOf(c.In[0].Shape.Rows(), int64(16*n), func(_, from, to int) {
		for r := from; r < to; r++ {
			row, order := x[r*n:][:n], y[r*n:][:n]
			for i := range order {
				order[i] = int32(i)
			}
			slices.SortFunc(order, func(i, j int32) int {
				a, b := row[i], row[j]
				if c.Attr.Inverse {
					a, b = b, a
				}
				switch {
				case a < b || a == a && b != b: // NaN is the largest
					return -1
				case a > b || a != a && b == b:
					return 1
				}
				return int(i - j)
			})
		}
	})
	return work.program(0, func(l *device.Launch) { x, y = F32(l, 0), ids(l, 1) })
}
