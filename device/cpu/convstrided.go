package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// byStridedTiles says that a convolution whose windows of 3 by 3 move by two places is computed by tiles of 2 by 2
// places, with 25 multiplications instead of 36. It does not depend on the number of samples.
func (v convolution) byStridedTiles(back bool) bool {
	t := v.stridedTiles(back)
	places, tiles := v.Out[1]*v.Out[2], int64(t.high*t.wide)
	saves := 5*25*tiles <= 4*9*places // a fifth of the multiplications, also where tiles lie partly outside
	return saves && v.groups == 1 && v.Kernel == [3]int64{1, 3, 3} && v.Stride == [3]int64{1, 2, 2} && v.Dilation == [3]int64{1, 1, 1} &&
		v.Padding[0] == 0 && v.Padding[1] <= 2 && v.Padding[2] <= 2 && v.C%kernel.StridedLanes == 0 && v.O%kernel.StridedLanes == 0 &&
		v.C >= winogradChannels && v.O >= winogradChannels && tiles >= winogradTiles
}

// stridedTiles are the tiles of planes of x and y. A tile is 2 by 2 places of y and sees 5 by 5 of x; of the gradient
// it is 4 by 4 places of x, which 3 by 3 of dy give to.
type stridedTiles struct {
	planes, channels, made int
	from, to               [2]int // places of x and of y
	before                 [2]int // places of a window outside
	high, wide             int    // tiles of a plane
}

func (v convolution) stridedTiles(back bool) stridedTiles {
	t := stridedTiles{planes: int(v.B * v.In[0]), channels: int(v.C), made: int(v.O), before: [2]int{int(v.Padding[1]), int(v.Padding[2])},
		from: [2]int{int(v.In[1]), int(v.In[2])}, to: [2]int{int(v.Out[1]), int(v.Out[2])}}
	t.high, t.wide = (t.to[0]+1)/2, (t.to[1]+1)/2
	if back {
		t.high, t.wide = (t.from[0]+t.before[0]+3)/4, (t.from[1]+t.before[1]+3)/4
	}
	return t
}

func (t stridedTiles) count() int { return t.planes * t.high * t.wide }

// at is the plane of a tile, and the first of its places of y.
func (t stridedTiles) at(i int) (plane, y, x int) {
	return i / (t.high * t.wide), i / t.wide % t.high * 2, i % t.wide * 2
}

// square finds side by side places from (y, x) on of a plane of so many places and channels: as they lie, or copied
// to room with zeros for those outside.
func square(room, plane []float32, side, y, x int, size [2]int, channels int) (data []float32, row, col int) {
	if y >= 0 && x >= 0 && y+side <= size[0] && x+side <= size[1] {
		return plane[(y*size[1]+x)*channels:], size[1] * channels, channels
	}
	for i := range side * side {
		place := room[i*channels:][:channels]
		if y, x := y+i/side, x+i%side; y < 0 || y >= size[0] || x < 0 || x >= size[1] {
			clear(place)
		} else {
			copy(place, plane[(y*size[1]+x)*channels:])
		}
	}
	return room, side * channels, channels
}

// put makes side by side places from (y, x) on of a plane: where they lie, or in room, from where those inside are
// copied.
func put(room, plane []float32, side, y, x int, size [2]int, channels int, write func(to []float32, row, col int)) {
	if y >= 0 && x >= 0 && y+side <= size[0] && x+side <= size[1] {
		write(plane[(y*size[1]+x)*channels:], size[1]*channels, channels)
		return
	}
	write(room, side*channels, channels)
	for i := range side * side {
		if y, x := y+i/side, x+i%side; y >= 0 && y < size[0] && x >= 0 && x < size[1] {
			copy(plane[(y*size[1]+x)*channels:][:channels], room[i*channels:])
		}
	}
}

// A blocked is a matmul of some of the terms of a tile: where its matrices begin, and how many channels it takes
// or makes at a time.
type blocked struct {
	parts     int
	at        int // of the terms before it
	in, out   int
	weights   int
	depth, to int // rows and columns of its weights
}

// blocks sorts the terms of a tile by matmul, and says for each term which is its and which part of it.
func (t stridedTiles) blocks(of [5]int, back bool) (list []blocked, matmul, part [kernel.StridedTerms]int) {
	side := of[4] + 1
	list = make([]blocked, side*side)
	for k := range matmul {
		m := of[k/5]*side + of[k%5]
		matmul[k], part[k] = m, list[m].parts
		list[m].parts++
	}
	sum, weights := 0, 0
	for m := range list {
		b := &list[m]
		b.at, sum = sum, sum+b.parts
		b.depth, b.to = b.parts*t.channels, t.made
		if back {
			b.depth, b.to = t.made, b.parts*t.channels
		}
		b.weights, weights = weights, weights+oddLines(b.depth*kernel.PackedColumns(b.to))
	}
	return append(list, blocked{weights: weights}), matmul, part
}

// stridedTogether is how many tiles a piece has at most: as many as keep what they need in the second-level cache.
const stridedTogether = 60

// convStrided is a convolution by tiles, or its gradient of x.
func convStrided(c op.Call, v convolution, workers int) Program {
	const lanes = kernel.StridedLanes
	back := c.Kind == op.ConvInput
	t := v.stridedTiles(back)
	n, of := pieceOf(t.count(), stridedTogether, workers), kernel.StridedParts
	takes, gives := kernel.StridedTerms*t.channels, kernel.StridedSums*t.made // of a tile
	if back {
		of, takes, gives = kernel.StridedBackParts, kernel.StridedBack*t.made, kernel.StridedTerms*t.channels
	}
	list, matmul, part := t.blocks(of, back)
	weights := list[len(list)-1].weights
	list = list[:len(list)-1]
	// Matrices of a matmul lie one behind the other, with rows of all its parts.
	xi := oddLines(n * t.made) // of what has the channels of y
	for m := range list {
		b := &list[m]
		b.in, b.out = b.at*n*t.channels+16*m, m*xi
		if back {
			b.in, b.out = b.out, b.in
		}
	}
	room := alignedFloats(25 * max(t.channels, t.made))
	ins, outs := alignedFloats(n*takes)+16*len(list)+xi, alignedFloats(n*gives)+16*len(list)+xi
	own := ins + outs + room
	var table [kernel.StridedTerms]int // of the terms of the first tile of a piece; each has its own row
	for k := range table {
		b := list[matmul[k]]
		table[k] = b.in + part[k]*t.channels
		if back {
			table[k] = b.out + part[k]*t.channels
		}
	}
	tables := make([][kernel.StridedTerms]int, n)
	for i := range tables {
		for k := range table {
			tables[i][k] = table[k] + i*list[matmul[k]].parts*t.channels
		}
	}
	b := new(transformed)
	order := rowsOf(v.C*v.O/lanes, 25*lanes, func(_, from, to int) {
		for i := from; i < to; i++ {
			v.orderStrided(b.ordered, b.w, list, &matmul, &part, i, back)
		}
	})
	transform := func(in, edge []float32, from, to int) {
		for i := from; i < to; i++ {
			plane, top, left := t.at(i)
			data, row, col := square(edge, b.x[plane*t.from[0]*t.from[1]*t.channels:], 5, 2*top-t.before[0], 2*left-t.before[1], t.from, t.channels)
			kernel.StridedIn(in, &tables[i-from], data, row, col, t.channels)
		}
	}
	finish := func(out, edge []float32, from, to int) {
		for i := from; i < to; i++ {
			plane, top, left := t.at(i)
			put(edge, b.y[plane*t.to[0]*t.to[1]*t.made:], 2, top, left, t.to, t.made, func(to []float32, row, col int) {
				kernel.StridedOut(to, row, col, out[(i-from)*t.made:], xi, b.bias, t.made)
			})
		}
	}
	if back {
		transform = func(in, edge []float32, from, to int) {
			for i := from; i < to; i++ {
				plane, top, left := t.at(i)
				data, row, col := square(edge, b.x[plane*t.to[0]*t.to[1]*t.made:], 3, top-1, left-1, t.to, t.made)
				kernel.StridedBackIn(in[(i-from)*t.made:], xi, data, row, col, t.made)
			}
		}
		finish = func(out, edge []float32, from, to int) {
			for i := from; i < to; i++ {
				plane, top, left := t.at(i)
				put(edge, b.y[plane*t.from[0]*t.from[1]*t.channels:], 4, 2*top-t.before[0], 2*left-t.before[1], t.from, t.channels, func(to []float32, row, col int) {
					kernel.StridedBackOut(to, row, col, out, &tables[i-from], t.channels)
				})
			}
		}
	}
	work := &rows{n: t.count(), step: n, do: func(worker, from, to int) {
		mine := b.room[worker*own:][:own]
		in, out, edge := mine[:ins], mine[ins:][:outs], mine[ins+outs:]
		transform(in, edge, from, to)
		for _, m := range list {
			kernel.MultiplyPanels(out[m.out:], m.to, in[m.in:], m.depth, to-from, m.depth, b.ordered[m.weights:], m.to)
		}
		finish(out, edge, from, to)
	}}
	return byTransforms(c, b, weights, workers*own, order, work)
}

// orderStrided transforms weights [O C 3 3] of one vector of columns: number i of them, rows first.
func (v convolution) orderStrided(to, w []float32, list []blocked, matmul, part *[kernel.StridedTerms]int, i int, back bool) {
	const lanes = kernel.StridedLanes
	rows, rowStep, colStep := int(v.C), 9, int(v.C)*9
	if back {
		rows, rowStep, colStep = int(v.O), colStep, rowStep
	}
	row, col := i%rows, i/rows*lanes
	var window [9][lanes]float32
	for j := range lanes {
		for t, f := range (*[9]float32)(w[row*rowStep+(col+j)*colStep:]) {
			window[t][j] = f
		}
	}
	var factors [kernel.StridedTerms][lanes]float32
	kernel.StridedWeights(&factors, &window, back)
	for k := range factors {
		b, moved := &list[matmul[k]], part[k]*int(v.C)
		if back {
			kernel.PackRow(to[b.weights:], &factors[k], row, b.depth, moved+col, b.to)
		} else {
			kernel.PackRow(to[b.weights:], &factors[k], moved+row, b.depth, col, b.to)
		}
	}
}

// convStridedWeight is the gradient of weights by tiles. Matmuls are done in halves, so that all workers have about the same work.
func convStridedWeight(c op.Call, v convolution, workers int) Program {
	const terms, outTerms, lanes = kernel.StridedTerms, kernel.StridedSums, kernel.StridedLanes
	t := v.stridedTiles(false)
	channels, made := t.channels, t.made
	n := min(weightTiles, t.count())
	inStep, outStep := oddLines(channels), oddLines(made)
	ins, outs, sum := oddLines(n*inStep), oddLines(n*outStep), oddLines(made*channels)
	var table [terms]int
	for k := range table {
		table[k] = k * ins
	}
	var x, dy, dw []float32
	half := made / 2 / lanes * lanes
	s := &itemSums{items: t.count(), together: n, step: 8, pieces: 2 * terms, factors: terms*ins + outTerms*outs, sums: terms * sum,
		own: alignedFloats(max(25*max(channels, made), kernel.TransposedRoom(made, n)))}
	s.transform = func(factors, edge []float32, i, item int) {
		plane, top, left := t.at(item)
		data, row, col := square(edge, x[plane*t.from[0]*t.from[1]*channels:], 5, 2*top-t.before[0], 2*left-t.before[1], t.from, channels)
		kernel.StridedIn(factors[i*inStep:], &table, data, row, col, channels)
		data, row, col = square(edge, dy[plane*t.to[0]*t.to[1]*made:], 2, top, left, t.to, made)
		kernel.StridedGrad(factors[terms*ins+i*outStep:], outs, data, row, col, made)
	}
	s.multiply = func(sums, factors, room []float32, piece, _, n int, add bool) {
		k, from, to := piece/2, 0, half
		if piece%2 == 1 {
			from, to = half, made
		}
		if from == to {
			return
		}
		m := kernel.StridedParts[k/5]*3 + kernel.StridedParts[k%5]
		kernel.MultiplyTransposed(sums[k*sum+from*channels:], channels, factors[terms*ins+m*outs+from:], outStep, to-from, factors[k*ins:], inStep, channels, n, add, room)
	}
	places := [3][2]int{{0, 2}, {1, 4}, {2, 3}} // terms that a place of a window is in
	s.finish = rowsOf(int64(made), int64(channels*25), func(worker, from, to int) {
		line := s.roomOf(worker)[:channels]
		for o := from; o < to; o++ {
			for tap := range 9 {
				clear(line)
				for _, a := range places[tap/3] {
					for _, b := range places[tap%3] {
						kernel.Add(line, line, s.all[(5*a+b)*sum+o*channels:][:channels])
					}
				}
				for k, f := range line {
					storeGrad(&dw[(o*channels+k)*9+tap], f, c.Attr.Accumulate)
				}
			}
		}
	})
	return s.program(workers, func(l *device.Launch) { x, dy, dw = F32(l, 0), F32(l, 1), F32(l, 2) })
}
