package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	Register(op.Conv, conv)
	Register(op.ConvInput, conv)
	Register(op.ConvWeight, convWeight)
}

// convolution is a convolution of this device: channels are last, so that windows are rows of memory and
// a convolution is a matmul of windows and weights. The weights are put into the order of windows first.
type convolution struct {
	op.Convolution
	taps, each, made int // places of a window; channels of x and y in a group
	groups           int
	outside          int // places of y
}

func convolutionOf(c op.Call) convolution {
	v := convolution{Convolution: c.Conv()}
	v.groups = int(v.Groups)
	v.taps, v.each, v.made = int(v.Kernel[0]*v.Kernel[1]*v.Kernel[2]), int(v.C)/v.groups, int(v.O)/v.groups
	v.outside = int(v.B * v.Out[0] * v.Out[1] * v.Out[2])
	return v
}

func ints(v [3]int64) [3]int { return [3]int{int(v[0]), int(v[1]), int(v[2])} }

// depthwise says that each channel is convolved by itself.
func (v convolution) depthwise() bool { return v.each == 1 && v.made == 1 }

// windows of x, as the convolution sees them.
func (v convolution) windows() *kernel.Patches {
	return &kernel.Patches{Channels: int(v.C), Width: v.each, In: ints(v.In), Out: ints(v.Out), Kernel: ints(v.Kernel),
		Stride: ints(v.Stride), Padding: ints(v.Padding), Dilation: ints(v.Dilation)}
}

// reversed are the windows of y that a place of x lies in, of a convolution without strides: its
// gradient is a convolution with places in reverse order.
func (v convolution) reversed() *kernel.Patches {
	p := &kernel.Patches{Channels: int(v.O), Width: v.made, In: ints(v.Out), Out: ints(v.In), Kernel: ints(v.Kernel), Stride: [3]int{1, 1, 1}, Dilation: ints(v.Dilation)}
	for d := range p.Padding {
		p.Padding[d] = p.Dilation[d]*(p.Kernel[d]-1) - int(v.Padding[d])
	}
	return p
}

// reorder makes rows of places of weights [O C K..], for all workers: of each group [O places·C] or, for
// gradients, with places in reverse order, [places·O C].
type reorder struct {
	*rows
	to, w []float32
}

func (v convolution) byPlaces(back bool) *reorder {
	r := &reorder{}
	size, line := v.taps*v.each*v.made, v.taps*v.each
	r.rows = rowsOf(v.O, int64(line), func(_, first, end int) {
		for o := first; o < end; o++ {
			from, group := r.w[o*line:][:line], r.to[o/v.made*size:]
			for t := range v.taps {
				row := group[(o%v.made*v.taps+t)*v.each:][:v.each]
				if back {
					row = group[((v.taps-1-t)*v.made+o%v.made)*v.each:][:v.each]
				}
				for c := range row {
					row[c] = from[c*v.taps+t]
				}
			}
		}
	})
	return r
}

func (r *reorder) run(p *kernel.Pool, to, w []float32) {
	r.to, r.w = to, w
	r.start(p)
}

func (v convolution) weights() int { return v.taps * v.each * int(v.O) }

// alignedFloats rounds up to whole cache lines.
func alignedFloats(n int) int { return (n + 15) / 16 * 16 }

// conv is a convolution or its gradient of x, which is one too, by the fastest way for its shape.
func conv(c op.Call, workers int) Program {
	v, back := convolutionOf(c), c.Kind == op.ConvInput
	switch {
	case v.Pointwise():
		return pointwise(c, v, workers)
	case v.byGroupsThree():
		return convGroupsThree(c, v, workers)
	case v.byPlanes() || v.byRuns() && !back:
		return convGroups(c, v, workers)
	case v.byTiles():
		return convTiles(c, v, workers)
	case v.byStridedTiles(back):
		return convStrided(c, v, workers)
	case v.byPairs():
		return convPairs(c, v, workers)
	case v.byHalves():
		return convHalves(c, v, workers)
	case v.byThree():
		return depthwiseThree(c, v, workers)
	case v.bySeven(back):
		return depthwiseSeven(c, v, workers)
	case v.depthwise() && v.byLines(back) && v.manyEdges(back):
		return depthwisePlanes(c, v, workers)
	case v.depthwise() && v.byLines(back):
		return depthwiseLines(c, v, workers)
	case v.depthwise():
		return depthwise(c, v, workers)
	case !back:
		return convWindows(c, v, workers)
	case v.byPhases():
		return convInputPhases(c, v, workers)
	case v.singlePlaces():
		return convInputPlaces(c, v, workers)
	case v.Stride != [3]int64{1, 1, 1}:
		return convInputStrided(c, v, workers)
	}
	return convInput(c, v, workers)
}

// convWindows is a matmul of windows and weights.
func convWindows(c op.Call, v convolution, workers int) Program {
	p := v.windows()
	g := &kernel.Gemm{M: v.outside, N: v.made, K: p.Columns(), CStep: int(v.O), A: kernel.Matrix{Patches: p}, B: kernel.Matrix{Step: p.Columns(), Transposed: true}}
	room, ordered := alignedFloats(v.weights()), v.byPlaces(false)
	return Program{Workspace: bytesOf(room + g.Workspace(workers)), Run: func(pool *kernel.Pool, l *device.Launch) {
		y, work := F32(l, len(c.In)), scratch(l)
		ordered.run(pool, work, F32(l, 1))
		p.Data, g.Work = F32(l, 0), work[room:]
		for k := range v.groups {
			p.First, g.B.Data, g.C, g.Bias = k*v.each, work[k*p.Columns()*v.made:], y[k*v.made:], nil
			if c.Attr.Bias {
				g.Bias = F32(l, 2)[k*v.made:][:v.made]
			}
			g.Run(pool)
		}
	}}
}

// pointwise is a convolution, or a gradient of one, whose windows are single places: a matmul of rows.
func pointwise(c op.Call, v convolution, workers int) Program {
	wide := op.Call{Kind: op.MatMul, In: c.In, Out: c.Out, Attr: op.Attr{TransB: true, Bias: c.Attr.Bias}}
	rows := func(t op.Type) op.Type {
		return op.Type{DType: t.DType, Shape: []int64{t.Shape.Rows(), t.Shape.Last()}}
	}
	weight := op.Type{DType: c.In[0].DType, Shape: []int64{v.O, v.C}}
	switch c.Kind {
	case op.ConvInput:
		wide.Attr = op.Attr{Plus: c.Attr.Plus}
		wide.In, wide.Out = append([]op.Type{rows(c.In[0]), weight}, c.In[2:]...), []op.Type{rows(c.Out[0])}
	case op.ConvWeight: // dyᵀ·x, and the call has x first
		g := &kernel.Gemm{M: int(v.O), N: int(v.C), K: v.outside, CStep: int(v.C), Accumulate: c.Attr.Accumulate,
			A: kernel.Matrix{Step: int(v.O), Transposed: true}, B: kernel.Matrix{Step: int(v.C)}}
		return Program{Workspace: bytesOf(g.Workspace(workers)), Run: func(p *kernel.Pool, l *device.Launch) {
			g.A.Data, g.B.Data, g.C, g.Work = F32(l, 1), F32(l, 0), F32(l, 2), scratch(l)
			g.Run(p)
		}}
	default:
		wide.In, wide.Out = append([]op.Type{rows(c.In[0]), weight}, c.In[2:]...), []op.Type{rows(c.Out[0])}
	}
	return matMul(wide, workers)
}

// convInput is a matmul of reversed windows and weights.
func convInput(c op.Call, v convolution, workers int) Program {
	p := v.reversed()
	g := &kernel.Gemm{M: p.Rows(int(v.B)), N: v.each, K: p.Columns(), CStep: int(v.C), A: kernel.Matrix{Patches: p}, B: kernel.Matrix{Step: v.each}}
	room, ordered := alignedFloats(v.weights()), v.byPlaces(true)
	return Program{Workspace: bytesOf(room + g.Workspace(workers)), Run: func(pool *kernel.Pool, l *device.Launch) {
		dx, work := F32(l, 2), scratch(l)
		ordered.run(pool, work, F32(l, 1))
		p.Data, g.Work = F32(l, 0), work[room:]
		for k := range v.groups {
			p.First, g.B.Data, g.C = k*v.made, work[k*p.Columns()*v.each:], dx[k*v.each:]
			g.Run(pool)
		}
	}}
}

// singlePlaces says that windows are single places inside x, with others between them.
func (v convolution) singlePlaces() bool {
	return v.taps == 1 && v.groups == 1 && v.Padding == [3]int64{}
}

// convInputPlaces is a matmul of dy and weights whose rows are the places of dx that a window has; the others are zero.
func convInputPlaces(c op.Call, v convolution, workers int) Program {
	g := &kernel.Gemm{M: v.outside, N: int(v.C), K: int(v.O), CStep: int(v.C), A: kernel.Matrix{Step: int(v.O)}, B: kernel.Matrix{Step: int(v.C)}}
	room := alignedFloats(v.outside * int(v.C))
	var dx, given []float32
	write := writeCached
	if v.B*v.In[0]*v.In[1]*v.In[2]*v.C >= uncachedPlaces {
		write = kernel.CopyNonTemporal
	}
	g.Finish = func(from, to, j0, j1 int) {
		for i := from; i < to; i++ {
			v.placeRow(dx, given[i*int(v.C)+j0:i*int(v.C)+j1], int64(i), j0, write)
		}
	}
	return Program{Workspace: bytesOf(room + g.Workspace(workers)), Run: func(pool *kernel.Pool, l *device.Launch) {
		work := scratch(l)
		dx, given = F32(l, 2), work[:room]
		g.A.Data, g.B.Data, g.C, g.Work = F32(l, 0), F32(l, 1), given, work[room:]
		g.Run(pool)
	}}
}

// uncachedPlaces is from how many elements on a gradient that is mostly zeros is written past the caches: it would be evicted before
// it is read.
const uncachedPlaces = 4 << 20

// writeCached copies, as usual, or writes zeros where from is nil.
func writeCached(to, from []float32) {
	if from == nil {
		clear(to)
	} else {
		copy(to, from)
	}
}

// placeRow puts some channels, from first on, of place i of y where its window of one place lies in dx, and zeros at the places between
// it and the next windows.
func (v convolution) placeRow(dx, row []float32, i int64, first int, write func(to, from []float32)) {
	at, next := [3]int64{i / (v.Out[1] * v.Out[2]) % v.Out[0], i / v.Out[2] % v.Out[1], i % v.Out[2]}, [3]int64{}
	for d := range at {
		if next[d] = (at[d] + 1) * v.Stride[d]; at[d] == v.Out[d]-1 {
			next[d] = v.In[d]
		}
		at[d] *= v.Stride[d]
	}
	sample := i / (v.Out[0] * v.Out[1] * v.Out[2])
	for z := at[0]; z < next[0]; z++ {
		for y := at[1]; y < next[1]; y++ {
			for x := at[2]; x < next[2]; x++ {
				to := dx[int((((sample*v.In[0]+z)*v.In[1]+y)*v.In[2]+x)*v.C)+first:][:len(row)]
				if z == at[0] && y == at[1] && x == at[2] {
					write(to, row)
				} else {
					write(to, nil)
				}
			}
		}
	}
}

// givenRoom is how many elements of windows are computed at a time, where a line of places of y gives fewer: they
// stay in the caches.
const givenRoom = 128 << 10

// convInputStrided multiplies some lines of places of y by the weights, which gives what each adds to its window,
// and then adds to each place of x what these windows give it, in order.
func convInputStrided(c op.Call, v convolution, workers int) Program {
	columns, wide := v.taps*v.each, int(v.Out[2])
	lines := min(max(givenRoom/(wide*columns), 1), int(v.Out[1]))
	g := &kernel.Gemm{N: columns, K: v.made, M: lines * wide, CStep: columns, A: kernel.Matrix{Step: int(v.O)}, B: kernel.Matrix{Step: columns}}
	room, ordered := alignedFloats(v.weights()), v.byPlaces(false)
	gives := alignedFloats(lines * wide * columns)
	var dx, windows []float32
	var sample, group, deep, first, n int // n lines from first on of plane deep of y
	line, high := int(v.In[2]*v.C), int(v.In[1])
	collect := rowsOf(v.Kernel[0]*v.In[1], v.In[2]*int64(columns), func(_, from, to int) {
		for i := from; i < to; i++ {
			z := deep*int(v.Stride[0]) - int(v.Padding[0]) + i/high*int(v.Dilation[0])
			if z >= 0 && z < int(v.In[0]) {
				v.collectLine(dx[((sample*int(v.In[0])+z)*high+i%high)*line:][:line], windows, i/high, i%high, first, n, group)
			}
		}
	})
	zero := rowsOf(v.In[0]*v.In[1], int64(line), func(_, from, to int) {
		clear(dx[(sample*volume(ints(v.In))/int(v.In[2])+from)*line:][:(to-from)*line])
	})
	return Program{Workspace: bytesOf(room + gives + g.Workspace(workers)), Run: func(pool *kernel.Pool, l *device.Launch) {
		work, w, dy := scratch(l), F32(l, 1), F32(l, 0)
		dx, windows, g.Work = F32(l, 2), work[room:], work[room+gives:]
		ordered.run(pool, work, w)
		for sample = range int(v.B) {
			zero.start(pool)
			for i := range int(v.Out[0]) * v.groups {
				deep, group = i/v.groups, i%v.groups
				for first = 0; first < int(v.Out[1]); first += lines {
					n = min(lines, int(v.Out[1])-first)
					at := ((sample*int(v.Out[0])+deep)*int(v.Out[1]) + first) * wide
					g.M, g.A.Data, g.B.Data, g.C = n*wide, dy[at*int(v.O)+group*v.made:], work[group*v.made*columns:], windows
					g.Run(pool)
					collect.start(pool)
				}
			}
		}
	}}
}

// collectLine adds what the windows of n lines of y from first on, of one group, give line y of x with plane kd of
// theirs, a line of a window at a time: where these lie in memory as those of x do, they are added whole.
func (v convolution) collectLine(dx, windows []float32, kd, y, first, n, group int) {
	columns, width, channels, wide := v.taps*v.each, int(v.In[2]), int(v.C), int(v.Out[2])
	for kh := range v.Kernel[1] {
		oh, inside := v.along(1, int64(y), kh)
		i := int(oh) - first
		if !inside || i < 0 || i >= n {
			continue
		}
		k := (kd*int(v.Kernel[1]) + int(kh)) * int(v.Kernel[2])
		for ow := range wide {
			given := windows[(i*wide+ow)*columns+k*v.each:][:int(v.Kernel[2])*v.each]
			first := ow*int(v.Stride[2]) - int(v.Padding[2])
			if v.groups == 1 && v.Dilation[2] == 1 {
				low, high := max(0, -first), min(int(v.Kernel[2]), width-first)
				if low < high {
					at := dx[(first+low)*channels:][:(high-low)*channels]
					addShort(at, given[low*channels:][:len(at)])
				}
				continue
			}
			for t := range int(v.Kernel[2]) {
				if x := first + t*int(v.Dilation[2]); x >= 0 && x < width {
					at := dx[x*channels+group*v.each:][:v.each]
					kernel.Add(at, at, given[t*v.each:])
				}
			}
		}
	}
}

// addShort adds lines that may be shorter than vectors: what is left over of those is added one by one, since
// masked stores take as long as many others.
func addShort(to, from []float32) {
	whole := len(to) &^ 7
	if whole > 0 {
		kernel.Add(to[:whole], to[:whole], from)
	}
	for i := whole; i < len(to); i++ {
		to[i] += from[i]
	}
}

// along says which place of y has place `at` of x at place k of its window, in one dimension.
func (v convolution) along(d int, at, k int64) (int64, bool) {
	o := at + v.Padding[d] - k*v.Dilation[d]
	return o / v.Stride[d], o >= 0 && o%v.Stride[d] == 0 && o/v.Stride[d] < v.Out[d]
}

// meets calls f with the places of y whose windows place i of x lies in, and where in them.
func (v convolution) meets(i int, f func(place, tap int)) {
	at := [3]int64{int64(i) / (v.In[1] * v.In[2]), int64(i) / v.In[2] % v.In[1], int64(i) % v.In[2]}
	along := func(d int, k int64) (int64, bool) { return v.along(d, at[d], k) }
	for kd := range v.Kernel[0] {
		od, ok := along(0, kd)
		for kh := range v.Kernel[1] {
			oh, fits := along(1, kh)
			if !ok || !fits {
				continue
			}
			for kw := range v.Kernel[2] {
				if ow, fits := along(2, kw); fits {
					f(int((od*v.Out[1]+oh)*v.Out[2]+ow), int((kd*v.Kernel[1]+kh)*v.Kernel[2]+kw))
				}
			}
		}
	}
}

func convWeight(c op.Call, workers int) Program {
	v := convolutionOf(c)
	switch {
	case v.Pointwise():
		return pointwise(c, v, workers)
	case v.byGroupsThree():
		return convGroupsThreeWeight(c, v, workers)
	case v.byPlanes():
		return convGroupsWeight(c, v, workers)
	case v.byRuns():
		return convRunsWeight(c, v, workers)
	case v.byTiles():
		return convTilesWeight(c, v, workers)
	case v.byStridedTiles(false):
		return convStridedWeight(c, v, workers)
	case v.byPairs():
		return convPairsWeight(c, v, workers)
	case v.byHalves():
		return convHalvesWeight(c, v, workers)
	case v.byThree():
		return depthwiseThreeWeight(c, v, workers)
	case v.depthwise() && v.byLines(false) && v.Kernel[2] >= 3:
		return depthwiseWeightLines(c, v, workers)
	case v.depthwise():
		return depthwiseWeight(c, v)
	}
	p := v.windows()
	columns := p.Columns()
	g := &kernel.Gemm{M: v.made, N: columns, K: v.outside, CStep: columns, A: kernel.Matrix{Step: int(v.O), Transposed: true}, B: kernel.Matrix{Patches: p}}
	if v.singlePlaces() { // sums lie as weights do
		g.Accumulate = c.Attr.Accumulate
		return Program{Workspace: bytesOf(g.Workspace(workers)), Run: func(pool *kernel.Pool, l *device.Launch) {
			p.Data, g.A.Data, g.C, g.Work = F32(l, 0), F32(l, 1), F32(l, 2), scratch(l)
			g.Run(pool)
		}}
	}
	room := alignedFloats(v.made * columns)
	return Program{Workspace: bytesOf(room + g.Workspace(workers)), Run: func(pool *kernel.Pool, l *device.Launch) {
		dw, dy, work := F32(l, 2), F32(l, 1), scratch(l)
		p.Data, g.C, g.Work = F32(l, 0), work[:room], work[room:]
		for k := range v.groups {
			p.First, g.A.Data = k*v.each, dy[k*v.made:]
			g.Run(pool)
			v.toWeights(dw[k*v.made*columns:], work, c.Attr.Accumulate)
		}
	}}
}

// toWeights puts the gradient of a group, [O places C], into the order of weights.
func (v convolution) toWeights(dw, from []float32, add bool) {
	for o := range v.made {
		for k := range v.each {
			line := dw[(o*v.each+k)*v.taps:][:v.taps]
			for t := range line {
				f := from[(o*v.taps+t)*v.each+k]
				if add {
					f += line[t]
				}
				line[t] = f
			}
		}
	}
}

// depthwise convolves each channel by itself, all channels of a place at once; of the gradient the places
// of y are those whose windows a place of x lies in.
func depthwise(c op.Call, v convolution, _ int) Program {
	channels, back := int(v.C), c.Kind == op.ConvInput
	to, from := v.Out, v.In
	if back {
		to, from = v.In, v.Out
	}
	places, others := int(to[0]*to[1]*to[2]), int(from[0]*from[1]*from[2])
	var x, y, w, bias []float32
	work := rowsOf(v.B*int64(places), v.C*int64(v.taps), func(_, first, end int) {
		for i := first; i < end; i++ {
			row, base := y[i*channels:][:channels], i/places*others
			if bias != nil {
				copy(row, bias)
			} else {
				clear(row)
			}
			add := func(place, tap int) { kernel.AddMul(row, x[(base+place)*channels:], w[tap*channels:]) }
			if back {
				v.meets(i%places, add)
			} else {
				v.sees(i%places, add)
			}
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

// sees calls f with the places of x that the window of place i of y holds, and where in it they are.
func (v convolution) sees(i int, f func(place, tap int)) {
	at := [3]int64{int64(i) / (v.Out[1] * v.Out[2]), int64(i) / v.Out[2] % v.Out[1], int64(i) % v.Out[2]}
	for kd := range v.Kernel[0] {
		z := at[0]*v.Stride[0] - v.Padding[0] + kd*v.Dilation[0]
		for kh := range v.Kernel[1] {
			y := at[1]*v.Stride[1] - v.Padding[1] + kh*v.Dilation[1]
			if z < 0 || z >= v.In[0] || y < 0 || y >= v.In[1] {
				continue
			}
			for kw := range v.Kernel[2] {
				if x := at[2]*v.Stride[2] - v.Padding[2] + kw*v.Dilation[2]; x >= 0 && x < v.In[2] {
					f(int((z*v.In[1]+y)*v.In[2]+x), int((kd*v.Kernel[1]+kh)*v.Kernel[2]+kw))
				}
			}
		}
	}
}

// depthwiseParts is into how many parts the places of y are cut for gradients of weights; the parts are
// then added in order.
const depthwiseParts = 16

func depthwiseWeight(c op.Call, v convolution) Program {
	channels := int(v.C)
	size, places, others := v.taps*channels, v.outside/int(v.B), int(v.In[0]*v.In[1]*v.In[2])
	var x, dy, partial []float32
	work := &rows{n: v.outside, step: max(1, (v.outside+depthwiseParts-1)/depthwiseParts)}
	work.do = func(_, from, to int) {
		own := partial[from/work.step*size:][:size]
		clear(own)
		for i := from; i < to; i++ {
			v.sees(i%places, func(place, tap int) {
				kernel.AddMul(own[tap*channels:][:channels], x[(i/places*others+place)*channels:], dy[i*channels:])
			})
		}
	}
	return Program{Workspace: bytesOf(depthwiseParts * size), Run: func(p *kernel.Pool, l *device.Launch) {
		x, dy, partial = F32(l, 0), F32(l, 1), scratch(l)
		work.start(p)
		for k := 1; k < work.pieces(); k++ {
			kernel.AddScaled(partial[:size], partial[k*size:], 1)
		}
		v.storeDepthwise(F32(l, 2), partial, func(tap int) int { return tap }, c.Attr.Accumulate)
	}}
}
