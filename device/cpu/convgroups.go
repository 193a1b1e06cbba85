package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// fewChannels is up to how many channels of a group a convolution is computed plane by plane: matmuls of
// so few columns would waste most of their time.
const fewChannels = 32

// byPlanes says that a convolution has groups of few channels.
func (v convolution) byPlanes() bool {
	return v.groups > 1 && !v.depthwise() && v.each <= fewChannels && v.made <= fewChannels && v.made%4 == 0
}

// plane is what windows of x look at; back, what those of dy look at for the gradient of x.
func (v convolution) plane(back bool) *kernel.Plane {
	p := &kernel.Plane{From: ints(v.In), To: ints(v.Out), Kernel: ints(v.Kernel), Stride: ints(v.Stride), Dilation: ints(v.Dilation),
		Before: ints(v.Padding), Apart: [3]int{1, 1, 1}, Channels: int(v.C), Taken: v.each}
	if back {
		p.From, p.To, p.Stride, p.Apart, p.Channels, p.Taken = p.To, p.From, p.Apart, p.Stride, int(v.O), v.made
		for d := range p.Before {
			p.Before[d] = p.Dilation[d]*(p.Kernel[d]-1) - p.Before[d]
		}
	}
	return p.Init()
}

func volume(v [3]int) int { return v[0] * v[1] * v[2] }

// neighbours is how many groups of so many channels one worker takes, so that workers seldom write to the
// same cache line.
func neighbours(channels int) int { return (15 + channels) / channels }

// convGroups is a convolution of groups of few channels, or its gradient of x: a piece of work is a sample
// of a group, whose plane stays in the cache.
func convGroups(c op.Call, v convolution, workers int) Program {
	back := c.Kind == op.ConvInput
	p, to, toAll := v.plane(back), v.made, int(v.O)
	if back {
		to, toAll = v.each, int(v.C)
	}
	const cols = kernel.PlaneCols
	panels, panel := (to+cols-1)/cols, v.taps*p.Taken*cols
	weights, biases := alignedFloats(v.groups*panels*panel), alignedFloats(v.groups*panels*cols)
	own := alignedFloats(p.Size()) + kernel.PlaneRoom
	var x, y, w, bias, ordered, biased, room []float32
	order := rowsOf(int64(v.groups), int64(panels*panel), func(_, from, to int) {
		for g := from; g < to; g++ {
			v.orderPanels(ordered[g*panels*panel:][:panels*panel], w, g, back)
		}
	})
	piece := func(plane []float32, sample, g int) {
		p.Fill(plane, x[sample*volume(p.From)*p.Channels+g*p.Taken:])
		for k := range panels {
			var add []float32
			if bias != nil {
				add = biased[(g*panels+k)*cols:]
			}
			p.Convolve(y[sample*volume(p.To)*toAll+g*to+k*cols:], plane, ordered[(g*panels+k)*panel:], add, toAll, min(cols, to-k*cols), plane[own-kernel.PlaneRoom:])
		}
	}
	work := &rows{n: int(v.B) * v.groups, step: neighbours(to), do: func(worker, from, to int) {
		for i := from; i < to; i++ {
			piece(room[worker*own:][:own], i/v.groups, i%v.groups)
		}
	}}
	return Program{Workspace: bytesOf(weights + biases + workers*own), Run: func(pool *kernel.Pool, l *device.Launch) {
		all := scratch(l)
		x, w, y, bias = F32(l, 0), F32(l, 1), F32(l, len(c.In)), nil
		ordered, biased, room = all, all[weights:], all[weights+biases:]
		if c.Attr.Bias {
			bias = F32(l, 2)
			for o, b := range bias {
				biased[o/to*panels*cols+o%to] = b
			}
		}
		order.start(pool)
		work.start(pool)
	}}
}

// orderPanels puts the weights of a group into the order of planes: [panels places channels columns],
// with zeros where columns are missing; back with places in reverse order.
func (v convolution) orderPanels(to, w []float32, group int, back bool) {
	const cols = kernel.PlaneCols
	clear(to)
	from := v.made
	if !back {
		from = v.each
	}
	for o := range v.made {
		for k := range v.each {
			line := w[((group*v.made+o)*v.each+k)*v.taps:][:v.taps]
			column, row := o, k
			if back {
				column, row = k, o
			}
			at := to[(column/cols*v.taps*from+row)*cols+column%cols:]
			for t, f := range line {
				if back {
					t = v.taps - 1 - t
				}
				at[t*from*cols] = f
			}
		}
	}
}

// convGroupsWeight is the gradient of weights: a piece of work is a group.
func convGroupsWeight(c op.Call, v convolution, workers int) Program {
	p := v.plane(false)
	one := [3]int{1, 1, 1} // what dy has of a group, side by side
	given := (&kernel.Plane{From: p.To, To: p.To, Kernel: one, Stride: one, Dilation: one, Apart: one, Channels: int(v.O), Taken: v.made}).Init()
	size, nextTo := alignedFloats(p.Size()), alignedFloats(given.Size())
	together, each := neighbours(v.each), alignedFloats(p.Sums(v.made))
	own := size + nextTo + together*each
	var x, dy, dw, room []float32
	store := func(sums []float32, g int) {
		p.EachSum(sums, v.made, func(o, k, t int, sum float32) {
			at := &dw[((g*v.made+o)*v.each+k)*v.taps+t]
			if c.Attr.Accumulate {
				sum += *at
			}
			*at = sum
		})
	}
	work := &rows{n: v.groups, step: together, do: func(worker, from, to int) {
		plane := room[worker*own:][:own]
		side, sums := plane[size:], plane[size+nextTo:]
		clear(sums)
		for sample := range int(v.B) {
			for g := from; g < to; g++ { // these share cache lines
				p.Fill(plane, x[sample*volume(p.From)*p.Channels+g*v.each:])
				given.Fill(side, dy[sample*volume(p.To)*int(v.O)+g*v.made:])
				p.AddWeights(sums[(g-from)*each:], plane, side, given.Width, v.made)
			}
		}
		for g := from; g < to; g++ {
			store(sums[(g-from)*each:], g)
		}
	}}
	return work.program(bytesOf(workers*own), func(l *device.Launch) {
		x, dy, dw, room = F32(l, 0), F32(l, 1), F32(l, 2), scratch(l)
	})
}
