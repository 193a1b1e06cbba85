package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
)

func init() { RegisterNative(op.Blend, blend, nil) }

// blend mixes gradients or weights of any type into f32 numbers.
func blend(c op.Call, workers int) Program {
	scalars := scalarsOf(c.Kind, "keep", "take", "plain")
	y := newGradient(c.In[1].DType, workers)
	var x []float32
	var keep, take, by float32
	work := runsOf(c.Out[0].Shape.Elements(), workers, func(worker, from, to int) {
		y.each(worker, from, to, func(i, j int, part []float32) {
			switch into := x[i:j]; {
			case keep == 0 && by == 1 && take == 1:
				copy(into, part)
			case keep == 0:
				for k, f := range part {
					into[k] = float32(float32(f*by) * take)
				}
			case keep == 1 && by == 1 && take == 1:
				kernel.AddScaled(into, part, 1)
			default:
				for k, f := range part {
					into[k] = dtype.FMA(into[k], keep, float32(float32(f*by)*take))
				}
			}
		})
	})
	return Program{Run: func(p *kernel.Pool, l *device.Launch) {
		s := scalars(l)
		if keep, take, by = s[0], s[1], F32(l, 2)[0]; !(by > 0) {
			return
		}
		if s[2] != 0 {
			by = 1
		}
		x = F32(l, 0)
		y.set(l.Buffers[1])
		work.start(p)
	}}
}
