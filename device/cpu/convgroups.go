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

// planesRoom is how many elements the planes of all groups have at most, where a line of windows has fewer: they
// stay in the second-level cache. Those of runs stay in the first.
const planesRoom, runsRoom = 64 << 10, 4 << 10

// plane is what windows of x look at; back, what those of dy look at for the gradient of x. Its lines do not depend
// on the number of workers.
func (v convolution) plane(back bool) *kernel.Plane {
	p, room := v.aroundPlaces(back), planesRoom/v.groups
	if p.Runs = v.groups == 1; p.Runs {
		room = runsRoom
	}
	return cutLines(p, room)
}

// aroundPlaces is a plane of one group, without its lines.
func (v convolution) aroundPlaces(back bool) *kernel.Plane {
	p := &kernel.Plane{From: ints(v.In), To: ints(v.Out), Kernel: ints(v.Kernel), Stride: ints(v.Stride), Dilation: ints(v.Dilation),
		Before: ints(v.Padding), Apart: [3]int{1, 1, 1}, Channels: int(v.C), Taken: v.each}
	if back {
		p.From, p.To, p.Stride, p.Apart, p.Channels, p.Taken = p.To, p.From, p.Apart, p.Stride, int(v.O), v.made
		for d := range p.Before {
			p.Before[d] = p.Dilation[d]*(p.Kernel[d]-1) - p.Before[d]
		}
	}
	return p
}

// cutLines chooses the lines of a plane, about the same number for each, so that it has so many elements.
func cutLines(p *kernel.Plane, room int) *kernel.Plane {
	p.Lines = p.To[1]
	most := max(room*p.To[1]/p.Init().Size(), 1)
	parts := (p.To[1] + most - 1) / most
	p.Lines = (p.To[1] + parts - 1) / parts
	return p.Init()
}

func volume(v [3]int) int { return v[0] * v[1] * v[2] }

// cleared is room of workers, cleared before the first use in a launch: planes have zeros that nobody overwrites.
type cleared struct {
	room []float32
	own  int // of a worker
	done []bool
}

func (c *cleared) start(room []float32) {
	c.room = room
	clear(c.done)
}

func (c *cleared) of(worker int) []float32 {
	own := c.room[worker*c.own:][:c.own]
	if !c.done[worker] {
		clear(own)
		c.done[worker] = true
	}
	return own
}

// convGroups is a convolution of groups of few channels, or its gradient of x: a piece of work is some lines of
// all groups of a sample, so that memory is read in order.
func convGroups(c op.Call, v convolution, workers int) Program {
	back := c.Kind == op.ConvInput
	p, to, toAll := v.plane(back), v.made, int(v.O)
	if back {
		to, toAll = v.each, int(v.C)
	}
	cols := kernel.PanelCols(to)
	panels, panel := (to+cols-1)/cols, v.taps*p.Taken*cols
	weights, biases := alignedFloats(v.groups*panels*panel), alignedFloats(v.groups*panels*cols)
	size := oddLines(p.Size())
	planes := &cleared{own: v.groups*size + kernel.PlaneRoom, done: make([]bool, workers)}
	var x, y, w, bias, ordered, biased []float32
	order := rowsOf(int64(v.groups*panels), int64(panel), func(_, from, to int) {
		for i := from; i < to; i++ {
			v.orderPanel(ordered[i*panel:][:panel], w, i/panels, i%panels*cols, cols, back)
		}
	})
	parts := (p.To[1] + p.Lines - 1) / p.Lines
	work := &rows{n: int(v.B) * p.To[0] * parts, step: 1, do: func(worker, i, _ int) {
		sample, z, first := i/parts/p.To[0], i/parts%p.To[0], i%parts*p.Lines
		own, n := planes.of(worker), min(p.Lines, p.To[1]-first)
		p.Fill(own, size, x[sample*volume(p.From)*p.Channels:], v.groups, z, first, n)
		lines := y[(i/parts*p.To[1]+first)*p.To[2]*toAll:][:n*p.To[2]*toAll]
		for k := range v.groups * panels {
			g, col := k/panels, k%panels*cols
			var add []float32
			if bias != nil {
				add = biased[k*cols:]
			}
			p.Convolve(lines[g*to+col:], own[g*size:], ordered[k*panel:], add, z, n, toAll, cols, min(cols, to-col), own[v.groups*size:])
		}
	}}
	return Program{Workspace: bytesOf(weights + biases + workers*planes.own), Run: func(pool *kernel.Pool, l *device.Launch) {
		all := scratch(l)
		x, w, y, bias = F32(l, 0), F32(l, 1), F32(l, len(c.In)), nil
		ordered, biased = all, all[weights:]
		planes.start(all[weights+biases:])
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

// orderPanel puts the weights of a panel of a group, columns from first on, into the order of planes: [places channels cols],
// with zeros where columns are missing; back with places in reverse order.
func (v convolution) orderPanel(to, w []float32, group, first, cols int, back bool) {
	clear(to)
	rows, columns := v.each, v.made
	if back {
		rows, columns = columns, rows
	}
	for j := range min(cols, columns-first) {
		for row := range rows {
			o, k := first+j, row
			if back {
				o, k = k, o
			}
			at := to[row*cols+j:]
			for t, f := range w[((group*v.made+o)*v.each+k)*v.taps:][:v.taps] {
				if back {
					t = v.taps - 1 - t
				}
				at[t*rows*cols] = f
			}
		}
	}
}

// convGroupsWeight is the gradient of weights: a piece of work is some groups, of which all samples are taken some
// lines at a time.
func convGroupsWeight(c op.Call, v convolution, workers int) Program {
	p := v.plane(false)
	one := [3]int{1, 1, 1} // what dy has of a group, side by side
	given := (&kernel.Plane{From: p.To, To: p.To, Kernel: one, Stride: one, Dilation: one, Apart: one, Channels: int(v.O), Taken: v.made, Lines: p.Lines}).Init()
	size, nextTo, each := oddLines(p.Size()), oddLines(given.Size()), alignedFloats(p.Sums(v.made))
	least := (15 + v.each) / v.each // so that workers seldom take the same cache lines
	together := max((v.groups+workers-1)/workers, least)
	planes := &cleared{own: together * (size + nextTo + each), done: make([]bool, workers)}
	var x, dy, dw []float32
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
		own := planes.of(worker)
		side, sums := own[together*size:], own[together*(size+nextTo):]
		clear(sums)
		for i := range int(v.B) * p.To[0] {
			sample, z := i/p.To[0], i%p.To[0]
			for first := 0; first < p.To[1]; first += p.Lines {
				n := min(p.Lines, p.To[1]-first)
				p.Fill(own, size, x[sample*volume(p.From)*p.Channels+from*v.each:], to-from, z, first, n)
				given.Fill(side, nextTo, dy[sample*volume(p.To)*int(v.O)+from*v.made:], to-from, z, first, n)
				for g := range to - from {
					p.AddWeights(sums[g*each:], own[g*size:], side[g*nextTo:], n, given.Width, v.made)
				}
			}
		}
		for g := from; g < to; g++ {
			store(sums[(g-from)*each:], g)
		}
	}}
	return work.program(bytesOf(workers*planes.own), func(l *device.Launch) {
		x, dy, dw = F32(l, 0), F32(l, 1), F32(l, 2)
		planes.start(scratch(l))
	})
}
