package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// bySeven says that a depthwise convolution has windows of 7 places along a line that move by one, and this CPU convolves some of them
// at a time.
func (v convolution) bySeven(back bool) bool {
	one := [3]int64{1, 1, 1}
	return v.depthwise() && v.Kernel[0] == 1 && v.Kernel[2] == 7 && v.Stride == one && v.Dilation == one && v.Padding[0] == 0 &&
		v.C%kernel.SevenLanes == 0 && kernel.HasSeven(v.tiles(back).to[2])
}

// sevenTogether is how many lines of y a worker computes one after the other: the next see lines of x that are in its cache.
const sevenTogether = 7

// depthwiseSeven is a convolution of lines, or its gradient of x, whose windows are in reverse order.
func depthwiseSeven(c op.Call, v convolution, workers int) Program {
	const lanes = kernel.SevenLanes
	back, channels := c.Kind == op.ConvInput, int(v.C)
	t, high := v.tiles(back), int(v.Kernel[1])
	each, line := (v.taps+1)*lanes, t.from[2]*channels
	places := kernel.SevenPlaces(t.to[2])
	args := make([]kernel.Seven, workers)
	var x, y, w []float32
	work := &rows{n: t.samples * t.to[0] * t.to[1], step: sevenTogether, do: func(worker, from, to int) {
		a := &args[worker]
		a.XLine, a.WNext, a.Step, a.Groups = line, each, channels, channels/lanes
		for i := from; i < to; i++ {
			plane, top := i/t.to[1], i%t.to[1]-t.before[1]
			first := max(-top, 0) // line of the windows that lies inside
			a.Lines = max(min(high, t.from[1]-top)-first, 0)
			a.W, a.Bias = &w[min(first, high)*7*lanes], (high-min(first, high))*7*lanes
			a.X = &x[(plane*t.from[1]+min(max(top, 0), t.from[1]-1))*line]
			for p := 0; p < t.to[2]; p += places {
				place := min(p, t.to[2]-places)
				a.Y, a.First = &y[(i*t.to[2]+place)*channels], place-t.before[2]
				a.Convolve(places, t.from[2])
			}
		}
	}}
	return work.program(bytesOf(each*channels/lanes), func(l *device.Launch) {
		x, y, w = F32(l, 0), F32(l, len(c.In)), scratch(l)
		for k := range channels {
			own := w[k/lanes*each+k%lanes:]
			for tap, f := range F32(l, 1)[v.taps*k:][:v.taps] {
				if back {
					tap = v.taps - 1 - tap
				}
				own[tap*lanes] = f
			}
			if own[v.taps*lanes] = 0; c.Attr.Bias {
				own[v.taps*lanes] = F32(l, 2)[k]
			}
		}
	})
}
