package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// byLines says that a depthwise convolution, or its gradient of x, is computed line by line: whole vectors of
// channels, and windows that lie side by side.
func (v convolution) byLines(back bool) bool {
	return v.C%kernel.DepthwiseLanes == 0 && (!back || v.Stride == [3]int64{1, 1, 1})
}

// manyEdges says that so many places of a line have windows that lie partly outside that these would take long.
func (v convolution) manyEdges(back bool) bool {
	out := v.Out[2]
	if back {
		out = v.In[2]
	}
	return v.Dilation[2]*(v.Kernel[2]-1)*8 > out
}

// depthwisePlanes convolves lines of a plane with zeros around, so that no window has an edge. Fills take much less
// time than large windows.
func depthwisePlanes(c op.Call, v convolution, workers int) Program {
	back, channels := c.Kind == op.ConvInput, int(v.C)
	p := v.aroundPlaces(back)
	p.Channels, p.Taken = channels, channels
	cutLines(p, depthwiseRoom)
	offsets := make([][2]int, v.taps)
	for t, at := range p.Offsets() {
		tap := t
		if back {
			tap = v.taps - 1 - t
		}
		offsets[t] = [2]int{at, tap * channels}
	}
	var x, y, w, bias []float32
	size, weights := alignedFloats(p.Size()), alignedFloats(v.weights())
	planes := &cleared{own: size, done: make([]bool, workers)}
	parts := (p.To[1] + p.Lines - 1) / p.Lines
	work := &rows{n: int(v.B) * p.To[0] * parts, step: 1, do: func(worker, i, _ int) {
		sample, z, first := i/parts/p.To[0], i/parts%p.To[0], i%parts*p.Lines
		own, n := planes.of(worker), min(p.Lines, p.To[1]-first)
		p.Fill(own, size, x[sample*volume(p.From)*channels:], 1, z, first, n)
		for k := range n {
			to := y[(i/parts*p.To[1]+first+k)*p.To[2]*channels:][:p.To[2]*channels]
			kernel.Depthwise(to, p.To[2], channels, own[p.Line(k):], p.Stride[2]*p.Width, w, offsets, bias, 0, len(to))
		}
	}}
	return work.program(bytesOf(weights+workers*size), func(l *device.Launch) {
		x, y, w, bias = F32(l, 0), F32(l, len(c.In)), scratch(l), nil
		planes.start(scratch(l)[weights:])
		if c.Attr.Bias {
			bias = F32(l, 2)
		}
		v.orderDepthwise(w, F32(l, 1))
	})
}

// depthwiseRoom is how many elements a plane has at most, where a line of windows sees fewer.
const depthwiseRoom = 128 << 10

// orderDepthwise puts weights [C K..] into the order [K.. C].
func (v convolution) orderDepthwise(to, w []float32) {
	channels := int(v.C)
	for k := range channels {
		for t := range v.taps {
			to[t*channels+k] = w[k*v.taps+t]
		}
	}
}

// depthwiseLines keeps places of a line in registers while their windows run. The places at its ends, whose
// windows lie partly outside, come one by one.
func depthwiseLines(c op.Call, v convolution, workers int) Program {
	t, back := v.tiles(false), c.Kind == op.ConvInput
	if back {
		t = v.tiles(true)
	}
	stride, dilation, size := ints(v.Stride), ints(v.Dilation), ints(v.Kernel)
	channels, taps := int(v.C), v.taps
	var x, y, w, bias []float32
	offsets := make([][2]int, workers*taps)
	// see lists the places of a window that lie inside, of a line at (z, y) of a sample; x is its first column.
	see := func(to [][2]int, top [3]int) [][2]int {
		for k := range taps {
			z, y, x := top[0]+k/(size[1]*size[2])*dilation[0], top[1]+k/size[2]%size[1]*dilation[1], top[2]+k%size[2]*dilation[2]
			if z < 0 || z >= t.from[0] || y < 0 || y >= t.from[1] || x < 0 || x >= t.from[2] {
				continue
			}
			tap := k
			if back {
				tap = taps - 1 - k
			}
			to = append(to, [2]int{((z*t.from[1]+y)*t.from[2] + x) * channels, tap * channels})
		}
		return to
	}
	xNext, yNext := stride[1]*t.from[2]*channels, t.to[2]*channels // from line to line
	reach := dilation[2] * (size[2] - 1)
	lines := t.to[0] * t.to[1]
	line := func(worker, i int) {
		own := offsets[worker*taps:][:0:taps]
		sample := x[i/lines*t.from[0]*t.from[1]*t.from[2]*channels:]
		to := y[i*t.to[2]*channels:]
		top := [3]int{i%lines/t.to[1]*stride[0] - t.before[0], i%t.to[1]*stride[1] - t.before[1], 0}
		for ow := 0; ow < t.to[2]; {
			top[2] = ow*stride[2] - t.before[2]
			n := 1
			if inside := t.from[2] - reach - top[2]; top[2] >= 0 && inside > 0 { // windows from here to the last inside
				n = min((inside+stride[2]-1)/stride[2], t.to[2]-ow)
			}
			if see := see(own, top); len(see) > 0 {
				kernel.Depthwise(to[ow*channels:], n, channels, sample, stride[2]*channels, w, see, bias, xNext, yNext)
			} else if bias != nil {
				copy(to[ow*channels:][:channels], bias)
			} else {
				clear(to[ow*channels:][:channels])
			}
			ow += n
		}
	}
	work := rowsOf(int64(t.samples*lines), int64(t.to[2]*channels*taps), func(worker, from, to int) {
		for i := from; i < to; i++ {
			line(worker, i)
		}
	})
	return work.program(bytesOf(v.weights()), func(l *device.Launch) {
		x, y, w, bias = F32(l, 0), F32(l, len(c.In)), scratch(l), nil
		if c.Attr.Bias {
			bias = F32(l, 2)
		}
		v.orderDepthwise(w, F32(l, 1))
	})
}

// depthwiseWeightLines is the gradient of weights line by line: sums of three places of a window and of a vector
// of channels stay in registers while a line runs. The places at its ends come one by one.
func depthwiseWeightLines(c op.Call, v convolution, workers int) Program {
	channels, places := int(v.C), v.outside/int(v.B)
	stride, dilation, kernels, in, out, before := ints(v.Stride), ints(v.Dilation), ints(v.Kernel), ints(v.In), ints(v.Out), ints(v.Padding)
	// The windows of places from first to end lie inside along a line.
	first := min((before[2]+stride[2]-1)/stride[2], out[2])
	end := max(min((in[2]-1-dilation[2]*(kernels[2]-1)+before[2])/stride[2]+1, out[2]), first)
	var x, dy, partial []float32
	perLine := (kernels[2] + 2) / 3
	room := make([]kernel.DepthwiseTriple, workers*kernels[0]*kernels[1]*perLine)
	line := func(own []float32, worker, i int) { // of all samples
		triples := room[worker*kernels[0]*kernels[1]*perLine:][:0]
		sample, z, y := i/(out[0]*out[1]), i/out[1]%out[0]*stride[0]-before[0], i%out[1]*stride[1]-before[1]
		from := x[sample*volume(in)*channels:][:volume(in)*channels]
		given := dy[i*out[2]*channels:][:out[2]*channels]
		for k := range kernels[0] * kernels[1] {
			z, y := z+k/kernels[1]*dilation[0], y+k%kernels[1]*dilation[1]
			if z < 0 || z >= in[0] || y < 0 || y >= in[1] {
				continue
			}
			for t := range perLine { // the last begins earlier, and its first places are sums of nobody's
				triples = append(triples, kernel.DepthwiseTriple{At: (z*in[1]+y)*in[2] + first*stride[2] - before[2] + min(3*t, kernels[2]-3)*dilation[2], Sums: k*perLine + t})
			}
		}
		for j := range triples {
			triples[j].At, triples[j].Sums = triples[j].At*channels, triples[j].Sums*3*channels
		}
		if end > first {
			kernel.DepthwiseWeights(own, triples, end-first, channels, from, dilation[2]*channels, stride[2]*channels, given[first*channels:], stride[1]*in[2]*channels)
		}
		for place := 0; place < out[2]; place++ {
			if place == first {
				place = end
				if place >= out[2] {
					break
				}
			}
			v.sees(i*out[2]%places+place, func(at, tap int) {
				kernel.AddMul(own[v.sumOf(tap)*channels:][:channels], from[at*channels:], given[place*channels:])
			})
		}
	}
	sums := kernels[0] * kernels[1] * perLine * 3 * channels
	lines := v.outside / out[2]
	work := &rows{n: lines, step: max(1, (lines+depthwiseParts-1)/depthwiseParts)}
	work.do = func(worker, from, to int) {
		own := partial[from/work.step*sums:][:sums]
		clear(own)
		for i := from; i < to; i++ {
			line(own, worker, i)
		}
	}
	return Program{Workspace: bytesOf(depthwiseParts * sums), Run: func(p *kernel.Pool, l *device.Launch) {
		x, dy, partial = F32(l, 0), F32(l, 1), scratch(l)
		work.start(p)
		for k := 1; k < work.pieces(); k++ {
			kernel.AddScaled(partial[:sums], partial[k*sums:][:sums], 1)
		}
		v.storeDepthwise(F32(l, 2), partial, v.sumOf, c.Attr.Accumulate)
	}}
}

// sumOf is which sum place t of a window has: those of a line of a window are three and three, and the last
// three may begin with places that have a sum already.
func (v convolution) sumOf(t int) int {
	wide := int(v.Kernel[2])
	perLine, at := (wide+2)/3, t%wide
	sum := t / wide * perLine * 3
	if at/3 == perLine-1 {
		return sum + at + 3*perLine - wide
	}
	return sum + at
}
