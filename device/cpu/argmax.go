package cpu

import (
	"spillway/device"
	"spillway/op"
)

func init() { Register(op.ArgMax, argMax) }

// argMax finds where the largest, or the smallest, of each line is.
func argMax(c op.Call, workers int) Program {
	s := linesOf(c)
	sign := float32(1)
	if c.Attr.Inverse {
		sign = -1
	}
	var x []float32
	var y []int32
	room := make([][strip]float32, workers)
	set := func(l *device.Launch) { x, y = F32(l, 0), ids(l, 1) }
	return s.strips(set, func(worker, at, width, line int) {
		best, to := room[worker][:width], y[line:line+width]
		for k := range s.along {
			for i, v := range x[at+k*s.inner:][:width] {
				if k == 0 || sign*v > best[i] {
					best[i], to[i] = sign*v, int32(k)
				}
			}
		}
	})
}
