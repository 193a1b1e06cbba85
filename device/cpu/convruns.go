package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// runChannels is up to how many channels a convolution without groups is computed by runs: images, and sound.
// Windows of so few channels are copied slowly, and matmuls copy each place as often as windows see it.
const runChannels = 4

// byRuns says that the lines of a window are runs of memory, few elements long, which are read as they lie in
// planes with zeros around.
func (v convolution) byRuns() bool {
	return v.groups == 1 && v.C <= runChannels && v.Dilation[2] == 1 && v.Stride[2] < v.Kernel[2] && v.plane(false).RunCols(int(v.O)) > 0
}

// runWindows is how many windows of a line are taken at once, where nothing is read twice.
const runWindows = 64

// convRunsWeight is the gradient of weights by runs: a piece of work is some channels of dy, for which all samples
// are taken some lines at a time.
func convRunsWeight(c op.Call, v convolution, workers int) Program {
	p := v.plane(false)
	cols := p.RunCols(int(v.O))
	one := [3]int{1, 1, 1} // vectors of channels of dy, side by side
	given := (&kernel.Plane{From: p.To, To: p.To, Kernel: one, Stride: one, Dilation: one, Apart: one, Channels: int(v.O), Taken: cols, Lines: p.Lines}).Init()
	size, nextTo, each := oddLines(p.Size()), oddLines(given.Size()), alignedFloats(p.RunSums(cols))
	vectors := int(v.O) / cols
	together := (vectors + workers - 1) / workers
	single := len(p.Offsets()) == 1 // each element of dy is read once, where it lies
	if single {
		nextTo = 0
	}
	planes := &cleared{own: size + together*(nextTo+each), done: make([]bool, workers)}
	var x, dy, dw []float32
	store := func(sums []float32, first int) {
		p.EachRunSum(sums, cols, func(o, k, t int, sum float32) {
			at := &dw[((first+o)*v.each+k)*v.taps+t]
			if c.Attr.Accumulate {
				sum += *at
			}
			*at = sum
		})
	}
	addSingle := func(plane, sums []float32, at, n, vectors int) {
		for i := range n {
			for w := 0; w < p.To[2]; w += runWindows {
				windows, x, given := min(runWindows, p.To[2]-w), plane[p.Line(i)+w*p.Stride[2]*p.Width:], dy[at+(i*p.To[2]+w)*int(v.O):]
				for k := range vectors {
					p.AddRuns(sums[k*each:], x, given[k*cols:], 1, windows, int(v.O), cols)
				}
			}
		}
	}
	work := &rows{n: vectors, step: together, do: func(worker, from, to int) {
		own := planes.of(worker)
		side, sums := own[size:], own[size+together*nextTo:]
		clear(sums)
		for i := range int(v.B) * p.To[0] {
			sample, z := i/p.To[0], i%p.To[0]
			for first := 0; first < p.To[1]; first += p.Lines {
				n := min(p.Lines, p.To[1]-first)
				p.Fill(own, size, x[sample*volume(p.From)*p.Channels:], 1, z, first, n)
				if single {
					addSingle(own, sums, ((i*p.To[1]+first)*p.To[2])*int(v.O)+from*cols, n, to-from)
					continue
				}
				given.Fill(side, nextTo, dy[sample*volume(p.To)*int(v.O)+from*cols:], to-from, z, first, n)
				for k := range to - from {
					p.AddRuns(sums[k*each:], own, side[k*nextTo:], n, p.To[2], cols, cols)
				}
			}
		}
		for k := from; k < to; k++ {
			store(sums[(k-from)*each:], k*cols)
		}
	}}
	return work.program(bytesOf(workers*planes.own), func(l *device.Launch) {
		x, dy, dw = F32(l, 0), F32(l, 1), F32(l, 2)
		planes.start(scratch(l))
	})
}
