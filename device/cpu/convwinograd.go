package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

// Winograd's convolutions make a tile of 2 by 2 places at once where windows are 3 by 3 and move by one:
// 16 multiplications instead of 36. It pays where channels are many enough that matmuls take longer than the
// transforms, and tiles than those of the weights.
const (
	winogradChannels = 32
	winogradTiles    = 16 // of a sample
)

// byTiles says that a convolution is computed this way. It does not depend on the number of samples.
func (v convolution) byTiles() bool {
	places, tiles := v.Out[1]*v.Out[2], int64(tilesOf(int(v.Out[1]), int(v.Dilation[1]))*tilesOf(int(v.Out[2]), int(v.Dilation[2])))
	saves := 4*16*tiles <= 3*9*places // a quarter of the multiplications, also where tiles lie partly outside
	return saves && v.groups == 1 && v.Kernel[1] == 3 && v.Kernel[2] == 3 && v.Stride == [3]int64{1, 1, 1} &&
		v.C%kernel.WinogradLanes == 0 && v.O%kernel.WinogradLanes == 0 && v.C >= winogradChannels && v.O >= winogradChannels && v.Out[0]*tiles >= winogradTiles
}

// tiled is a convolution by tiles, or its gradient of x, which is one too.
type tiled struct {
	samples, channels, made int
	from, to, before        [3]int // places; and how many lie before the first window
	deep                    int    // planes of a window
	apart                   [3]int // from one place of a window, and of a tile, to the next
	high, wide              int    // tiles of a plane
}

func (v convolution) tiles(back bool) tiled {
	t := tiled{samples: int(v.B), channels: int(v.C), made: int(v.O), from: ints(v.In), to: ints(v.Out), before: ints(v.Padding),
		deep: int(v.Kernel[0]), apart: ints(v.Dilation)}
	if back {
		t.channels, t.made, t.from, t.to = t.made, t.channels, t.to, t.from
		for d := range t.before {
			t.before[d] = int(v.Dilation[d]*(v.Kernel[d]-1) - v.Padding[d])
		}
	}
	t.high, t.wide = tilesOf(t.to[1], t.apart[1]), tilesOf(t.to[2], t.apart[2])
	return t
}

// tilesOf is how many tiles n places have whose two places are so far apart: pairs are in each other, and the
// last may lie outside.
func tilesOf(n, apart int) int { return apart * ((n + 2*apart - 1) / (2 * apart)) }

func tileAt(i, apart int) int { return i/apart*2*apart + i%apart }

// count is how many tiles there are.
func (t tiled) count() int { return t.samples * t.to[0] * t.high * t.wide }

// at is where a tile lies: the number of its plane in all samples, and its first line and place.
func (t tiled) at(i int) (plane, y, x int) {
	return i / (t.high * t.wide), tileAt(i/t.wide%t.high, t.apart[1]), tileAt(i%t.wide, t.apart[2])
}

// edge is the room for a tile that lies partly outside.
func (t tiled) edge() int { return 16 * max(t.channels, t.made) }

// transform makes the rows of tile i, one for each matmul: for each plane of a window the channels of x.
func (t tiled) transform(to []float32, xi int, x []float32, i int, edge []float32) {
	plane, y, left := t.at(i)
	y, left = y-t.before[1], left-t.before[2]
	c, line := t.channels, t.from[2]*t.channels
	for k := range t.deep {
		z := plane%t.to[0] - t.before[0] + k*t.apart[0]
		row := to[k*c:]
		if z < 0 || z >= t.from[0] {
			for p := range kernel.WinogradMatmuls {
				clear(row[p*xi:][:c])
			}
			continue
		}
		from := x[((plane/t.to[0]*t.from[0]+z)*t.from[1])*line:][:t.from[1]*line]
		if y >= 0 && y+3*t.apart[1] < t.from[1] && left >= 0 && left+3*t.apart[2] < t.from[2] {
			kernel.WinogradIn(row, xi, from[y*line+left*c:], t.apart[1]*line, t.apart[2]*c, c)
			continue
		}
		t.window(edge, from, 4, y, left, t.from[1], t.from[2], c)
		kernel.WinogradIn(row, xi, edge, 4*c, c, c)
	}
}

// window copies side by side places of a tile from (y, x) on, with zeros for those outside.
func (t tiled) window(to, from []float32, side, y, x, high, wide, channels int) {
	for i := range side {
		for j := range side {
			place := to[(i*side+j)*channels:][:channels]
			if y, x := y+i*t.apart[1], x+j*t.apart[2]; y < 0 || y >= high || x < 0 || x >= wide {
				clear(place)
			} else {
				copy(place, from[(y*wide+x)*channels:])
			}
		}
	}
}

// finish makes the places of tile i out of what the matmuls gave.
func (t tiled) finish(y []float32, matmuls []float32, xi int, bias []float32, i int, edge []float32) {
	plane, top, left := t.at(i)
	m, line := t.made, t.to[2]*t.made
	to := y[plane*t.to[1]*line:][:t.to[1]*line]
	down, right := t.apart[1], t.apart[2]
	if top+down < t.to[1] && left+right < t.to[2] {
		kernel.WinogradOut(to[top*line+left*m:], down*line, right*m, matmuls, xi, bias, m)
		return
	}
	kernel.WinogradOut(edge, 2*m, m, matmuls, xi, bias, m)
	for p := range 2 {
		for q := range 2 {
			if y, x := top+p*down, left+q*right; y < t.to[1] && x < t.to[2] {
				copy(to[y*line+x*m:][:m], edge[(2*p+q)*m:])
			}
		}
	}
}

// The columns and rows of weights that are transformed at a time: columns of a panel, so that no cache line of what is written
// is shared by two workers.
const orderedColumns, orderedRows = 64, 32

// orderTiles transforms weights [O C K 3 3] of some columns from col on and rows from k on.
func (v convolution) orderTiles(to, w []float32, xi int, back bool, col, k int, room []float32) {
	rows, cols, deep := int(v.C), int(v.O), int(v.Kernel[0])
	windows := kernel.Windows{RowStep: v.taps, Step: int(v.C) * v.taps, Reversed: back}
	if back {
		rows, cols, windows.RowStep, windows.Step = cols, rows, windows.Step, windows.RowStep
	}
	end, last := min(k+orderedRows, deep*rows), min(col+orderedColumns, cols)
	for n := 0; k < end; k += n {
		plane := k / rows
		n = min(end, (plane+1)*rows) - k
		if back {
			plane = deep - 1 - plane
		}
		for j := col; j < last; j += kernel.WinogradLanes {
			windows.Data = w[k%rows*windows.RowStep+j*windows.Step+plane*9:]
			kernel.WinogradWeights(to, xi, k, n, deep*rows, j, cols, windows, room)
		}
	}
}

// The tiles of a piece of work: as many as keep what they need in the second-level cache.
const (
	tilesMost, tilesLeast = 72, 66
	tilesRoom             = 192 << 10 // elements
)

// together is how many tiles a piece has.
func (t tiled) together(workers int) int {
	most := min(max(tilesRoom/kernel.WinogradMatmuls/(t.deep*t.channels+t.made), tilesLeast), tilesMost)
	return pieceOf(t.count(), most, workers)
}

// convTiles is a convolution by tiles, or its gradient of x.
func convTiles(c op.Call, v convolution, workers int) Program {
	const matmuls = kernel.WinogradMatmuls
	back := c.Kind == op.ConvInput
	t := v.tiles(back)
	depth, n := t.deep*t.channels, t.together(workers)
	each := oddLines(depth * kernel.PackedColumns(t.made)) // of the weights of one matmul
	taken, sums := oddLines(n*depth), oddLines(n*t.made)
	own := matmuls*(taken+sums) + alignedFloats(t.edge())
	b := new(transformed)
	chunks := (depth + orderedRows - 1) / orderedRows
	order := &rows{n: (t.made + orderedColumns - 1) / orderedColumns * chunks, step: 1, do: func(worker, i, _ int) {
		v.orderTiles(b.ordered, b.w, each, back, i/chunks*orderedColumns, i%chunks*orderedRows, b.room[worker*own:])
	}}
	work := &rows{n: t.count(), step: n, do: func(worker, from, to int) {
		mine := b.room[worker*own:][:own]
		in, out, edge := mine[:matmuls*taken], mine[matmuls*taken:][:matmuls*sums], mine[matmuls*(taken+sums):]
		for i := from; i < to; i++ {
			t.transform(in[(i-from)*depth:], taken, b.x, i, edge)
		}
		for p := range matmuls {
			kernel.MultiplyPanels(out[p*sums:], t.made, in[p*taken:], depth, to-from, depth, b.ordered[p*each:], t.made)
		}
		for i := from; i < to; i++ {
			t.finish(b.y, out[(i-from)*t.made:], sums, b.bias, i, edge)
		}
	}}
	return byTransforms(c, b, matmuls*each, workers*own, order, work)
}

// transformed are the operands of a convolution whose places and weights are transformed before they are multiplied, and what
// it needs meanwhile.
type transformed struct {
	x, w, y, bias []float32
	ordered, room []float32 // transformed weights; and what the workers need
}

// byTransforms is such a convolution: weights are put in order, of so many elements in all, and then pieces are worked on with room
// for all workers together.
func byTransforms(c op.Call, b *transformed, weights, room int, order, work *rows) Program {
	return Program{Workspace: bytesOf(weights + room), Run: func(pool *kernel.Pool, l *device.Launch) {
		all := scratch(l)
		b.x, b.w, b.y, b.bias = F32(l, 0), F32(l, 1), F32(l, len(c.In)), nil
		if c.Attr.Bias {
			b.bias = F32(l, 2)
		}
		b.ordered, b.room = all, all[weights:]
		order.start(pool)
		work.start(pool)
	}}
}

// pieceOf divides so many transforms into pieces of most at most: as many for each worker, of whole panels of rows.
func pieceOf(count, most, workers int) int {
	pieces := (count + most - 1) / most
	pieces = (pieces + workers - 1) / workers * workers
	return ((count+pieces-1)/pieces + 5) / 6 * 6
}

// weightTiles is how many tiles are multiplied at a time for gradients of weights: both factors of a tile of
// registers stay in the first-level cache.
const weightTiles = 160

// oddLines is the distance of rows of n elements in memory: an odd number of cache lines, so that rows do
// not lie in the same part of a cache.
func oddLines(n int) int { return (n+15)/16*16 | 16 }

// convTilesWeight is the gradient of weights by tiles.
func convTilesWeight(c op.Call, v convolution, workers int) Program {
	const matmuls, lanes = kernel.WinogradMatmuls, kernel.WinogradLanes
	t := v.tiles(false)
	depth, made := t.deep*t.channels, t.made
	n := min(weightTiles, t.count())
	inStep, outStep := oddLines(depth), oddLines(made)
	ins, outs, sum := oddLines(n*inStep), oddLines(n*outStep), oddLines(made*depth)
	var x, dy, dw []float32
	s := &itemSums{items: t.count(), together: n, step: 8, pieces: matmuls, factors: matmuls * (ins + outs), sums: matmuls * sum,
		own: alignedFloats(max(t.edge(), kernel.WinogradRoom, kernel.TransposedRoom(made, n)))}
	s.transform = func(factors, edge []float32, i, item int) {
		t.transform(factors[i*inStep:], ins, x, item, edge)
		t.transformGrad(factors[matmuls*ins+i*outStep:], outs, dy, item, edge)
	}
	s.multiply = func(sums, factors, room []float32, p, _, n int, add bool) {
		kernel.MultiplyTransposed(sums[p*sum:], depth, factors[matmuls*ins+p*outs:], outStep, made, factors[p*ins:], inStep, depth, n, add, room)
	}
	s.finish = rowsOf(int64(made), int64(depth*9), func(worker, from, to int) {
		windows := s.roomOf(worker)[:9*lanes]
		for i := from * t.deep; i < to*t.deep; i++ {
			o, plane, from := i/t.deep, i%t.deep, s.all[i*t.channels:]
			to := dw[o*t.channels*v.taps+plane*9:]
			if !c.Attr.Accumulate {
				kernel.WinogradBack(to, v.taps, from, sum, t.channels)
				continue
			}
			for k := 0; k < t.channels; k += lanes {
				kernel.WinogradBack(windows, 9, from[k:], sum, lanes)
				for j := range lanes {
					at := to[(k+j)*v.taps:][:9]
					for tap, f := range windows[9*j:][:9] {
						at[tap] += f
					}
				}
			}
		}
	})
	return s.program(workers, func(l *device.Launch) { x, dy, dw = F32(l, 0), F32(l, 1), F32(l, 2) })
}

// transformGrad makes the rows of tile i of dy, one for each matmul.
func (t tiled) transformGrad(to []float32, xi int, dy []float32, i int, edge []float32) {
	plane, y, x := t.at(i)
	m, line := t.made, t.to[2]*t.made
	from := dy[plane*t.to[1]*line:][:t.to[1]*line]
	if down, right := t.apart[1], t.apart[2]; y+down < t.to[1] && x+right < t.to[2] {
		kernel.WinogradGrad(to, xi, from[y*line+x*m:], down*line, right*m, m)
		return
	}
	t.window(edge, from, 2, y, x, t.to[1], t.to[2], m)
	kernel.WinogradGrad(to, xi, edge, 2*m, m, m)
}
