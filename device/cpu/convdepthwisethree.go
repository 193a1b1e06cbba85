package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// byThree says that a depthwise convolution has windows of 3 × 3 places, and this CPU convolves them some lines at a time.
func (v convolution) byThree() bool { return kernel.HasThree() && v.depthwise() && v.threeByThree() }

// threeByThree says that windows are 3 × 3 places side by side that move by one.
func (v convolution) threeByThree() bool {
	one := [3]int64{1, 1, 1}
	return v.Kernel == [3]int64{1, 3, 3} && v.Stride == one && v.Dilation == one && v.Padding[0] == 0 &&
		v.Padding[1] <= 2 && v.Padding[2] <= 2 && v.In[2] >= 2
}

// threes are the pieces of a convolution, or of its gradient of x, which is one too.
type threes struct {
	tiled
	parts int // pieces of a plane
	zeros []float32
	args  []kernel.Three // of the workers
}

func (v convolution) threes(back bool, workers int) *threes {
	t := &threes{tiled: v.tiles(back), args: make([]kernel.Three, workers)}
	t.parts = (t.to[1] + kernel.ThreeRows - 1) / kernel.ThreeRows
	return t
}

func (t *threes) pieces() int { return t.samples * t.to[0] * t.parts }

// piece is piece i, of y, and how many lines it has.
func (t *threes) piece(worker, i int, x, y []float32) (*kernel.Three, int) {
	a, plane, first := &t.args[worker], i/t.parts, i%t.parts*kernel.ThreeRows
	lines := min(kernel.ThreeRows, t.to[1]-first)
	for k := range a.X {
		a.X[k] = &t.zeros[0]
		if from := first + k - t.before[1]; from >= 0 && from < t.from[1] && k < lines+2 {
			a.X[k] = &x[(plane*t.from[1]+from)*t.from[2]*t.channels]
		}
	}
	a.Y, a.YStep, a.Step = &y[(plane*t.to[1]+first)*t.to[2]*t.channels], t.to[2]*t.channels, t.channels
	a.Columns, a.Skip = t.from[2], 2-t.before[2]
	a.Tail = t.to[2] - (a.Columns - a.Skip)
	return a, lines
}

// threeTogether is how many lines of y a worker computes one after the other: the next lines see two of x that are in its cache.
const threeTogether = 28

// depthwiseThree is a convolution of pieces, or its gradient of x, whose windows are in reverse order.
func depthwiseThree(c op.Call, v convolution, workers int) Program {
	back, channels := c.Kind == op.ConvInput, int(v.C)
	t := v.threes(back, workers)
	weights, line := kernel.ThreeWeights(channels), t.from[2]*channels
	var x, y, w []float32
	work := &rows{n: t.pieces(), step: threeTogether / kernel.ThreeRows, do: func(worker, from, to int) {
		for i := from; i < to; i++ {
			a, lines := t.piece(worker, i, x, y)
			a.W = &w[0]
			a.Convolve(lines)
		}
	}}
	return work.program(bytesOf(weights+line), func(l *device.Launch) {
		x, y, w = F32(l, 0), F32(l, len(c.In)), scratch(l)[:weights]
		t.zeros = scratch(l)[weights:][:line]
		clear(scratch(l)[:weights+line])
		for k := range channels {
			for tap, f := range F32(l, 1)[9*k:][:9] {
				if back {
					tap = 8 - tap
				}
				w[kernel.ThreeAt(k, tap)] = f
			}
			if c.Attr.Bias {
				w[kernel.ThreeAt(k, 9)] = F32(l, 2)[k]
			}
		}
	})
}

// depthwiseThreeWeight is the gradient of weights: each part of the pieces has its sums, which are added in order.
func depthwiseThreeWeight(c op.Call, v convolution, workers int) Program {
	t := v.threes(false, workers)
	sums, line := kernel.ThreeSums(int(v.C)), t.from[2]*int(v.C)
	var x, dy, partial []float32
	work := &rows{n: t.pieces(), step: max(1, (t.pieces()+depthwiseParts-1)/depthwiseParts)}
	work.do = func(worker, from, to int) {
		own := partial[from/work.step*sums:][:sums]
		clear(own)
		for i := from; i < to; i++ {
			a, lines := t.piece(worker, i, x, dy)
			a.Sums = &own[0]
			a.AddWeights(lines)
		}
	}
	return Program{Workspace: bytesOf(depthwiseParts*sums + line), Run: func(p *kernel.Pool, l *device.Launch) {
		x, dy, partial = F32(l, 0), F32(l, 1), scratch(l)
		t.zeros = scratch(l)[depthwiseParts*sums:][:line]
		clear(t.zeros)
		work.start(p)
		for k := 1; k < work.pieces(); k++ {
			kernel.AddScaled(partial[:sums], partial[k*sums:][:sums], 1)
		}
		for k := range int(v.C) {
			for tap := range 9 {
				storeGrad(&F32(l, 2)[9*k+tap], partial[kernel.ThreeSumAt(k, tap)], c.Attr.Accumulate)
			}
		}
	}}
}

// storeDepthwise puts sums of gradients, [sums C], into the order of weights [C K..]; sum says which is of a place of a window.
func (v convolution) storeDepthwise(dw, sums []float32, sum func(tap int) int, add bool) {
	channels := int(v.C)
	for k := range channels {
		for t := range v.taps {
			storeGrad(&dw[k*v.taps+t], sums[sum(t)*channels+k], add)
		}
	}
}
