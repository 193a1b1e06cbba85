package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// Convolutions along one dimension whose windows are long and move by one take their even and odd places apart: with d the places
// of x from the first of a window on, and g the window, a pair of places of y is
//
//	y0 = m0 + m1, y1 = m1 + m2 with
//	m0 = sum over s of (d[2s] - d[2s+1])·g[2s]
//	m1 = sum over s of d[2s+1]·(g[2s] + g[2s+1])
//	m2 = sum over s of (d[2s+2] - d[2s+1])·g[2s+1]
//
// which is three multiplications for four (Karatsuba's). Places of a sum lie two apart, so rows of even places and of odd ones are windows as
// they lie: three matmuls whose rows overlap, and the last two are added to the first where y is.
const (
	halvesChannels     = 32
	halvesPairs        = 96 // of a piece of work
	halvesWeightPairs  = 160
	halvesTogether     = 6  // segments whose gradients of weights are summed at a time
	halvesWeightColumn = 32 // columns of a matmul that a worker does at a time
)

// byHalves says that a convolution is computed this way. It does not depend on the number of samples.
func (v convolution) byHalves() bool {
	one := [3]int64{1, 1, 1}
	return v.groups == 1 && v.Kernel[0] == 1 && v.Kernel[1] == 1 && v.Kernel[2] >= 4 && v.Kernel[2] <= 32 && v.Stride == one && v.Dilation == one &&
		v.Padding[0] == 0 && v.Padding[1] == 0 && v.Padding[2] < v.Kernel[2] && v.C%kernel.StridedLanes == 0 && v.O%kernel.StridedLanes == 0 &&
		v.C >= halvesChannels && v.O >= halvesChannels && v.Out[2] >= halvesPairs
}

// halves is a convolution by halves, or its gradient of x, which is one too.
type halves struct {
	pairs
	taps [3]int // of each sum
}

func (v convolution) halves(back bool) halves {
	t := halves{pairs: v.pairs(back)}
	n := int(v.Kernel[2])
	if back {
		t.before = n - 1 - int(v.Padding[2])
	}
	t.taps = [3]int{(n + 1) / 2, (n + 1) / 2, n / 2}
	return t
}

// segments are into how many pieces of at most so many pairs a line is cut, and how many of them each has.
func (t halves) segments(most int) (count, each int) {
	count = (t.wide + most - 1) / most
	each = ((t.wide+count-1)/count + 5) / 6 * 6 // whole panels of rows
	return (t.wide + each - 1) / each, each
}

// room is how many elements the factors of a matmul take, of so many pairs.
func (t halves) room(pairs int) int { return oddLines((pairs + t.taps[0]) * t.channels) }

// transform makes the factors of the matmuls for n pairs of a line from first on: rows of even places less odd ones, of odd ones,
// and of the next even ones less those.
func (t halves) transform(to []float32, size int, x []float32, line, first, n int) {
	rows := n + t.taps[0] - 1
	even, odd, next := to[:(rows+1)*t.channels], to[size:][:rows*t.channels], to[2*size:][:rows*t.channels]
	place := func(row []float32, at int) {
		if at < 0 || at >= t.from {
			clear(row[:t.channels])
			return
		}
		copy(row[:t.channels], x[(line*t.from+at)*t.channels:])
	}
	for i := range rows {
		at := 2*(first+i) - t.before
		place(even[i*t.channels:], at)
		place(odd[i*t.channels:], at+1)
	}
	place(even[rows*t.channels:], 2*(first+rows)-t.before)
	copy(next, even[t.channels:])
	kernel.AddScaled(next, odd, -1)
	kernel.AddScaled(even[:len(odd)], odd, -1)
}

// orderHalves transforms weights [O C K] of one vector of columns of one row, number i of them, rows first: at says where those of
// a matmul begin.
func (v convolution) orderHalves(to, w []float32, t halves, at *[3]int, i int, back bool) {
	const lanes = kernel.StridedLanes
	taps := int(v.Kernel[2])
	rowStep, colStep := taps, int(v.C)*taps
	if back {
		rowStep, colStep = colStep, rowStep
	}
	row, col := i%t.channels, i/t.channels*lanes
	for s := range t.taps[0] {
		var factors [3][lanes]float32
		for j := range lanes {
			g := w[row*rowStep+(col+j)*colStep:][:taps]
			first, second := 2*s, 2*s+1
			if back {
				first, second = taps-1-first, taps-1-second
			}
			factors[0][j], factors[1][j] = g[first], g[first]
			if 2*s+1 < taps {
				factors[1][j], factors[2][j] = g[first]+g[second], g[second]
			}
		}
		for k := range factors {
			if s < t.taps[k] {
				kernel.PackRow(to[at[k]:], &factors[k], s*t.channels+row, t.taps[k]*t.channels, col, t.made)
			}
		}
	}
}

// convHalves is a convolution by halves, or its gradient of x.
func convHalves(c op.Call, v convolution, workers int) Program {
	back := c.Kind == op.ConvInput
	t := v.halves(back)
	count, n := t.segments(halvesPairs)
	var at [3]int // weights of the matmuls
	var weights int
	for k, taps := range t.taps {
		at[k] = weights
		weights += oddLines(taps * t.channels * kernel.PackedColumns(t.made))
	}
	size, sums := t.room(n), oddLines(n*t.made)
	own := 3*size + sums
	b := new(transformed)
	order := rowsOf(v.C*v.O/kernel.StridedLanes, int64(v.taps*kernel.StridedLanes), func(_, from, to int) {
		for i := from; i < to; i++ {
			v.orderHalves(b.ordered, b.w, t, &at, i, back)
		}
	})
	work := &rows{n: t.lines * count, step: 1, do: func(worker, i, _ int) {
		mine := b.room[worker*own:][:own]
		line, first := i/count, i%count*n
		rows := min(n, t.wide-first)
		t.transform(mine, size, b.x, line, first, rows)
		both := mine[3*size:]
		kernel.AddPanels(both, t.made, b.bias, 0, mine[size:], t.channels, rows, t.taps[1]*t.channels, b.ordered[at[1]:], t.made)
		y := b.y[(line*t.to+2*first)*t.made:]
		kernel.AddPanels(y, 2*t.made, both, t.made, mine, t.channels, rows, t.taps[0]*t.channels, b.ordered[at[0]:], t.made)
		if rows = min(rows, t.to/2-first); rows > 0 {
			kernel.AddPanels(y[t.made:], 2*t.made, both, t.made, mine[2*size:], t.channels, rows, t.taps[2]*t.channels, b.ordered[at[2]:], t.made)
		}
	}}
	return byTransforms(c, b, weights, workers*own, order, work)
}

// storeGrad stores an element of a gradient, or adds it.
func storeGrad(to *float32, f float32, add bool) {
	if add {
		f += *to
	}
	*to = f
}

// convHalvesWeight is the gradient of weights by halves: an item is a segment of a line.
func convHalvesWeight(c op.Call, v convolution, workers int) Program {
	t := v.halves(false)
	count, n := t.segments(halvesWeightPairs)
	channels, made := t.channels, t.made
	size, both := t.room(n), oddLines(n*made)
	each := 3*size + both // of a segment
	columns := halvesWeightColumn
	if max(2*made, channels) > kernel.NearRows { // rows are copied for each
		columns = 8 * halvesWeightColumn
	}
	var at [3]int // sums of the matmuls
	var sum int
	var pieces [][3]int // matmul, and its columns from to
	for k, taps := range t.taps {
		at[k] = sum
		sum += oddLines(made * taps * channels)
		for from := 0; from < taps*channels; from += columns {
			pieces = append(pieces, [3]int{k, from, min(from+columns, taps*channels)})
		}
	}
	var x, dy, dw []float32
	placed := func(item int) (line, from, pairs int) {
		return item / count, item % count * n, min(n, t.wide-item%count*n)
	}
	s := &itemSums{items: t.lines * count, together: min(halvesTogether, t.lines*count), step: 1, pieces: len(pieces), sums: sum,
		own: alignedFloats(kernel.TransposedRoom(made, n))}
	s.factors = s.together * each
	s.transform = func(factors, _ []float32, i, item int) {
		line, from, pairs := placed(item)
		to := factors[i*each:][:each]
		t.transform(to, size, x, line, from, pairs)
		for k := range pairs {
			row, place := to[3*size+k*made:][:made], (line*t.to+2*(from+k))*made
			if 2*(from+k)+1 < t.to {
				kernel.Add(row, dy[place:], dy[place+made:])
			} else {
				copy(row, dy[place:])
			}
		}
	}
	s.multiply = func(sums, factors, room []float32, piece, first, items int, add bool) {
		k, col, end := pieces[piece][0], pieces[piece][1], pieces[piece][2]
		wide := t.taps[k] * channels
		for i := range items {
			line, from, pairs := placed(first + i)
			place := (line*t.to + 2*from) * made
			left, step, add := dy[place:], 2*made, add || i > 0 // of m0
			switch k {
			case 1:
				left, step = factors[i*each+3*size:], made
			case 2:
				if pairs = min(pairs, t.to/2-from); pairs == 0 { // of a place without a pair
					for o := 0; o < made && !add; o++ {
						clear(sums[at[k]+o*wide:][col:end])
					}
					continue
				}
				left = dy[place+made:]
			}
			kernel.MultiplyTransposed(sums[at[k]+col:], wide, left, step, made, factors[i*each+k*size+col:], channels, end-col, pairs, add, room)
		}
	}
	s.finish = rowsOf(int64(made), int64(channels*v.taps), func(_, from, to int) {
		for o := from; o < to; o++ {
			for tap := range t.taps[0] {
				m0, m1 := s.all[at[0]+(o*t.taps[0]+tap)*channels:][:channels], s.all[at[1]+(o*t.taps[1]+tap)*channels:][:channels]
				var m2 []float32
				if tap < t.taps[2] {
					m2 = s.all[at[2]+(o*t.taps[2]+tap)*channels:][:channels]
				}
				for k := range channels {
					g := dw[(o*channels+k)*v.taps+2*tap:]
					storeGrad(&g[0], m0[k]+m1[k], c.Attr.Accumulate)
					if m2 != nil {
						storeGrad(&g[1], m1[k]+m2[k], c.Attr.Accumulate)
					}
				}
			}
		}
	})
	return s.program(workers, func(l *device.Launch) { x, dy, dw = F32(l, 0), F32(l, 1), F32(l, 2) })
}
