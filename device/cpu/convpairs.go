package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// Convolutions along one dimension make two places at once where windows have three places and move by one: with d
// the places of x and g the window, four multiplications instead of six (Winograd's minimal filtering) make
//
//	y0 = (d0-d2)·g0 + (d1+d2)·(g0+g1+g2)/2 + (d2-d1)·(g0-g1+g2)/2
//	y1 = (d1+d2)·(g0+g1+g2)/2 - (d2-d1)·(g0-g1+g2)/2 - (d1-d3)·g2
//
// The multiplications of all pairs of places and channels are four matmuls.
const pairMatmuls = 4

// pairChannels is how many channels make matmuls take much longer than the sums.
const pairChannels = 128

// byPairs says that a convolution is computed this way. It does not depend on the number of samples.
func (v convolution) byPairs() bool {
	one := [3]int64{1, 1, 1}
	return v.groups == 1 && v.Kernel == [3]int64{1, 1, 3} && v.Stride == one && v.Dilation == one && v.Padding[0] == 0 && v.Padding[1] == 0 && v.Padding[2] <= 2 &&
		v.C%kernel.StridedLanes == 0 && v.O%kernel.StridedLanes == 0 && v.C >= pairChannels && v.O >= pairChannels && v.Out[2] >= winogradTiles
}

// pairs is a convolution by pairs, or its gradient of x, which is one too.
type pairs struct {
	lines, channels, made int
	from, to, before      int // places of a line, and how many lie before the first window
	wide                  int // pairs of a line
}

func (v convolution) pairs(back bool) pairs {
	t := pairs{lines: int(v.B * v.In[0] * v.In[1]), channels: int(v.C), made: int(v.O), from: int(v.In[2]), to: int(v.Out[2]), before: int(v.Padding[2])}
	if back {
		t.channels, t.made, t.from, t.to, t.before = t.made, t.channels, t.to, t.from, 2-t.before
	}
	t.wide = (t.to + 1) / 2
	return t
}

func (t pairs) count() int { return t.lines * t.wide }

// placeOf is a place of a line of so many, or zeros where it lies outside.
func placeOf(x []float32, line, at, size, channels int, zeros []float32) []float32 {
	if at < 0 || at >= size {
		return zeros[:channels]
	}
	return x[(line*size+at)*channels:][:channels]
}

// transform makes the rows of pair i, one for each matmul.
func (t pairs) transform(to []float32, xi int, x []float32, i int, zeros []float32) {
	line, at := i/t.wide, i%t.wide*2-t.before
	var d [4][]float32
	for k := range d {
		d[k] = placeOf(x, line, at+k, t.from, t.channels, zeros)
	}
	less := func(to, x, y []float32) {
		copy(to, x)
		kernel.AddScaled(to, y, -1)
	}
	less(to[:t.channels], d[0], d[2])
	kernel.Add(to[xi:][:t.channels], d[1], d[2])
	less(to[2*xi:][:t.channels], d[2], d[1])
	less(to[3*xi:][:t.channels], d[1], d[3])
}

// finish makes the places of pair i out of what the matmuls gave.
func (t pairs) finish(y, matmuls []float32, xi int, bias []float32, i int) {
	var m [pairMatmuls][]float32
	for k := range m {
		m[k] = matmuls[k*xi:][:t.made]
	}
	line, at := i/t.wide, i%t.wide*2
	left := y[(line*t.to+at)*t.made:][:t.made]
	kernel.Add(left, m[0], m[1])
	kernel.Add(left, left, m[2])
	if bias != nil {
		kernel.Add(left, left, bias)
	}
	if at+1 == t.to {
		return
	}
	right := y[(line*t.to+at+1)*t.made:][:t.made]
	copy(right, m[1])
	kernel.AddScaled(right, m[2], -1)
	kernel.AddScaled(right, m[3], -1)
	if bias != nil {
		kernel.Add(right, right, bias)
	}
}

// transformGrad makes the rows of pair i of dy for gradients of weights, one for each matmul.
func (t pairs) transformGrad(to []float32, xi int, dy []float32, i int, zeros []float32) {
	line, at := i/t.wide, i%t.wide*2
	left, right := placeOf(dy, line, at, t.to, t.made, zeros), placeOf(dy, line, at+1, t.to, t.made, zeros)
	copy(to[:t.made], left)
	kernel.Add(to[xi:][:t.made], left, right)
	copy(to[2*xi:][:t.made], left)
	kernel.AddScaled(to[2*xi:][:t.made], right, -1)
	clear(to[3*xi:][:t.made])
	kernel.AddScaled(to[3*xi:][:t.made], right, -1)
}

// orderPairs transforms weights [O C 3] of one vector of columns: number i of them, rows first.
func (v convolution) orderPairs(to, w []float32, xi, i int, back bool) {
	const lanes = kernel.StridedLanes
	rows, cols, rowStep, colStep := int(v.C), int(v.O), 3, int(v.C)*3
	if back {
		rows, cols, rowStep, colStep = cols, rows, colStep, rowStep
	}
	row, col := i%rows, i/rows*lanes
	var factors [pairMatmuls][lanes]float32
	for j := range lanes {
		g := (*[3]float32)(w[row*rowStep+(col+j)*colStep:])
		first, middle, last := g[0], g[1], g[2]
		if back {
			first, last = last, first
		}
		factors[0][j], factors[1][j], factors[2][j], factors[3][j] = first, (first+last+middle)/2, (first+last-middle)/2, last
	}
	for k := range factors {
		kernel.PackRow(to[k*xi:], &factors[k], row, rows, col, cols)
	}
}

// pairsTogether is how many pairs a piece of work has at most.
const pairsTogether = 72

// convPairs is a convolution by pairs, or its gradient of x.
func convPairs(c op.Call, v convolution, workers int) Program {
	back := c.Kind == op.ConvInput
	t := v.pairs(back)
	n := pieceOf(t.count(), pairsTogether, workers)
	each := oddLines(t.channels * kernel.PackedColumns(t.made)) // of the weights of one matmul
	taken, sums, zeros := oddLines(n*t.channels), oddLines(n*t.made), alignedFloats(t.channels)
	own := pairMatmuls*(taken+sums) + zeros
	b := new(transformed)
	order := rowsOf(v.C*v.O/kernel.StridedLanes, pairMatmuls*kernel.StridedLanes, func(_, from, to int) {
		for i := from; i < to; i++ {
			v.orderPairs(b.ordered, b.w, each, i, back)
		}
	})
	work := &rows{n: t.count(), step: n, do: func(worker, from, to int) {
		mine := b.room[worker*own:][:own]
		in, out, none := mine[:pairMatmuls*taken], mine[pairMatmuls*taken:][:pairMatmuls*sums], mine[own-zeros:]
		clear(none)
		for i := from; i < to; i++ {
			t.transform(in[(i-from)*t.channels:], taken, b.x, i, none)
		}
		for k := range pairMatmuls {
			kernel.MultiplyPanels(out[k*sums:], t.made, in[k*taken:], t.channels, to-from, t.channels, b.ordered[k*each:], t.made)
		}
		for i := from; i < to; i++ {
			t.finish(b.y, out[(i-from)*t.made:], sums, b.bias, i)
		}
	}}
	return byTransforms(c, b, pairMatmuls*each, workers*own, order, work)
}

// convPairsWeight is the gradient of weights by pairs.
func convPairsWeight(c op.Call, v convolution, workers int) Program {
	const parts = 8 // of the rows of a matmul
	t := v.pairs(false)
	channels, made := t.channels, t.made
	n := min(weightTiles, t.count())
	inStep, outStep := oddLines(channels), oddLines(made)
	ins, outs, sum := oddLines(n*inStep), oddLines(n*outStep), oddLines(made*channels)
	var x, dy, dw []float32
	zeros := make([]float32, max(channels, made))
	s := &itemSums{items: t.count(), together: n, step: 8, pieces: parts * pairMatmuls, factors: pairMatmuls * (ins + outs), sums: pairMatmuls * sum,
		own: alignedFloats(kernel.TransposedRoom(made/parts+1, n))}
	s.transform = func(factors, _ []float32, i, item int) {
		t.transform(factors[i*inStep:], ins, x, item, zeros)
		t.transformGrad(factors[pairMatmuls*ins+i*outStep:], outs, dy, item, zeros)
	}
	s.multiply = func(sums, factors, room []float32, piece, _, n int, add bool) {
		k, from, to := piece/parts, piece%parts*made/parts, (piece%parts+1)*made/parts
		kernel.MultiplyTransposed(sums[k*sum+from*channels:], channels, factors[pairMatmuls*ins+k*outs+from:], outStep, to-from, factors[k*ins:], inStep, channels, n, add, room)
	}
	s.finish = rowsOf(int64(made), int64(channels*3), func(_, from, to int) {
		sums := s.all
		for i := from * channels; i < to*channels; i++ {
			outer, middle := (sums[sum+i]+sums[2*sum+i])/2, (sums[sum+i]-sums[2*sum+i])/2
			g, at := [3]float32{sums[i] + outer, middle, outer + sums[3*sum+i]}, (*[3]float32)(dw[3*i:])
			if c.Attr.Accumulate {
				g[0], g[1], g[2] = g[0]+at[0], g[1]+at[1], g[2]+at[2]
			}
			*at = g
		}
	})
	return s.program(workers, func(l *device.Launch) { x, dy, dw = F32(l, 0), F32(l, 1), F32(l, 2) })
}
