package cpu

import (
	"spillway/device"
	"spillway/op"
)

func init() { RegisterNative(op.Counted, counted, nil) }

// counted tells targets that count from ignored ones.
func counted(c op.Call, _ int) Program {
	var in, out []int32
	var counts []float32
	return elements(c, func(l *device.Launch) { in, out, counts = ids(l, 0), view[int32](l.Buffers[1]), F32(l, 2) }, func(from, to int) {
		for i := from; i < to; i++ {
			out[i], counts[i] = in[i], 1
			if in[i] == op.IgnoreIndex {
				out[i], counts[i] = 0, 0
			}
		}
	})
}
