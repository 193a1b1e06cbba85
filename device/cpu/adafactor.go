package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	RegisterNative("adafactor", newAdafactor, nil)
}

// adafactor updates a param in several passes, each of which needs the results of the whole
// pass before it. Sums are f64, within each row and then over the rows in order, so that they
// do not depend on which worker computed what.
type adafactor struct {
	lines, rows, cols int // of all matrices; of one
	factored          bool

	row, col []float32 // row is v of a vector
	w        *weight
	g        *gradient
	m        *state // nil for none
	copied   *weightCopy
	scratch  [][]float32 // by worker: steps of a part of a row

	byRow, byCol []float32 // what u is g times
	sums         []float64 // by row: of squares of the weights, then of the steps

	scalars                        func(l *device.Launch) op.Scalars
	lr, decay, minScale, threshold float64
	take, eps, clip, clip2         float64
	rate, shrink, beta1            float32 // rate and shrink follow from lr, decay and the size of the param
}

// vectorRow is how many elements of a vector one piece of work has.
const vectorRow = 4 << 10

func newAdafactor(c op.Call, workers int) Program {
	s := c.In[0].Shape
	a := &adafactor{factored: len(s) > 1, w: newWeight(c.In[0].DType, workers), g: newGradient(c.In[1].DType, workers), copied: newWeightCopy(c),
		scalars: scalarsOf(c.Kind, "rate", "decay", "beta1", "take", "eps", "min_scale", "threshold")}
	n, squares := int(s.Elements()), 1
	if a.factored {
		squares = 2
		a.cols, a.rows = int(s[len(s)-1]), int(s[len(s)-2])
		a.lines = n / a.cols
	} else {
		a.cols, a.rows = min(n, vectorRow), 1
		a.lines = (n + a.cols - 1) / a.cols
	}
	if len(c.In) == 4+squares {
		a.m = newState(c.In[2], workers)
	}
	for range workers {
		a.scratch = append(a.scratch, make([]float32, widenedAtOnce))
	}
	byLine := func(do func(worker, line, from, to int)) *rows {
		return rowsOf(int64(a.lines), int64(a.cols), func(worker, first, last int) {
			for line := first; line < last; line++ {
				do(worker, line, line*a.cols, min((line+1)*a.cols, n))
			}
		})
	}
	squaresByRow, sizes, steps := byLine(a.squares), byLine(a.size), byLine(a.step)
	squaresByCol := &rows{n: n / max(a.rows, 1), step: colStep, do: a.columns}
	return Program{Workspace: a.workspace(n), Run: func(p *kernel.Pool, l *device.Launch) {
		a.set(l, n)
		if a.clip > 0 {
			squaresByRow.start(p)
			if a.factored {
				squaresByCol.start(p)
				a.factors()
			}
			a.scale(total(a.sums), n)
			sizes.start(p)
			// The rate is lower where the root mean square of the steps is above the threshold.
			a.rate /= float32(max(1, math.Sqrt(total(a.sums)/float64(n))/a.threshold))
			steps.start(p)
		}
		a.copied.write(a.w.wide, 0, n)
	}}
}

// colStep is how many columns one piece of work sums over all rows.
const colStep = 512

// workspace is the size of the sums and of the factors of rows and columns, in bytes.
func (a *adafactor) workspace(n int) int64 {
	bytes := int64(8 * a.lines)
	if a.factored {
		bytes += int64(4 * (a.lines + n/a.rows))
	}
	return bytes
}

func (a *adafactor) set(l *device.Launch, n int) {
	a.w.set(l)
	a.g.set(l.Buffers[1])
	at := 2
	if a.m != nil {
		a.m.set(l, at, 0)
		at++
	}
	a.row = F32(l, at)
	space := l.Workspace
	part := func(bytes int) device.Buffer {
		b := device.Buffer{Memory: space.Memory, Offset: space.Offset, Bytes: int64(bytes)}
		space.Offset += int64(bytes)
		return b
	}
	a.sums = view[float64](part(8 * a.lines))
	if a.factored {
		at++
		a.col = F32(l, at)
		a.byRow, a.byCol = view[float32](part(4*a.lines)), view[float32](part(4*n/a.rows))
	}
	a.copied.set(l)
	s := a.scalars(l)
	a.lr, a.decay, a.beta1, a.minScale, a.threshold = float64(s[0]), float64(s[1]), s[2], float64(s[5]), float64(s[6])
	a.take, a.eps, a.clip = float64(s[3]), float64(s[4]), float64(F32(l, at+1)[0])
	a.clip2 = a.clip * a.clip
}

// squares updates the mean of squared gradients of a row, and sums the squares of its
// weights.
func (a *adafactor) squares(worker, line, from, to int) {
	sum := 0.0
	a.g.each(worker, from, to, func(i, j int, g []float32) {
		if a.factored {
			sum += kernel.SumSquares(g)
			return
		}
		for k, v := range a.row[i:j] {
			a.row[i+k] = float32(float64(v) + (float64(g[k])*float64(g[k])*a.clip2+a.eps-float64(v))*a.take)
		}
	})
	if a.factored {
		old := float64(a.row[line])
		a.row[line] = float32(old + (sum*a.clip2/float64(a.cols)+a.eps-old)*a.take)
	}
	sum = 0
	for i := from; i < to; i += widenedAtOnce {
		sum += kernel.SumSquares(a.w.open(worker, i, min(i+widenedAtOnce, to)))
	}
	a.sums[line] = sum
}

// columns updates the means of squared gradients of columns, counted over all matrices.
func (a *adafactor) columns(worker, first, last int) {
	var sums [colStep]float64
	for first < last {
		matrix, col := first/a.cols, first%a.cols
		n := min(last-first, a.cols-col)
		clear(sums[:n])
		for row := range a.rows {
			at := (matrix*a.rows+row)*a.cols + col
			a.g.each(worker, at, at+n, func(i, _ int, g []float32) {
				for k, f := range g {
					sums[i-at+k] += float64(f) * float64(f)
				}
			})
		}
		for k, sum := range sums[:n] {
			old := float64(a.col[first+k])
			a.col[first+k] = float32(old + (sum*a.clip2/float64(a.rows)+a.eps-old)*a.take)
		}
		first += n
	}
}

// factors computes, from the means of squares, what gradients are multiplied by.
func (a *adafactor) factors() {
	for first := 0; first < a.lines; first += a.rows {
		row, mean := a.row[first:first+a.rows], 0.0
		for _, r := range row {
			mean += float64(r) / float64(a.rows)
		}
		for i, r := range row {
			a.byRow[first+i] = float32(a.clip / math.Sqrt(float64(r)/mean))
		}
	}
	for i, c := range a.col {
		a.byCol[i] = float32(1 / math.Sqrt(float64(c)))
	}
}

// scale computes the rate from lr and the sum of squares of the weights.
func (a *adafactor) scale(squares float64, n int) {
	rate := a.lr
	if a.minScale > 0 {
		rate *= max(a.minScale, math.Sqrt(squares/float64(n)))
	}
	a.rate, a.shrink = float32(rate), float32(1-rate*a.decay)
}

// steps computes the steps of a row, before they are multiplied by the rate, part by part.
func (a *adafactor) steps(worker, line, from, to int, use func(from int, u []float32)) {
	room := a.scratch[worker]
	a.g.each(worker, from, to, func(i, j int, g []float32) {
		for ; i < j; i, g = i+len(room), g[min(len(room), len(g)):] {
			u := room[:min(len(room), j-i)]
			a.unscaled(u, g, line, i)
			use(i, u)
		}
	})
}

// unscaled computes steps from gradients; the first is that of element i.
func (a *adafactor) unscaled(u, g []float32, line, i int) {
	if !a.factored {
		for k, v := range a.row[i : i+len(u)] {
			u[k] = g[k] * float32(a.clip/math.Sqrt(float64(v)))
		}
		return
	}
	byRow, byCol := a.byRow[line], a.byCol[(line/a.rows-line)*a.cols+i:]
	for k := range u {
		u[k] = g[k] * byRow * byCol[k]
	}
}

// size sums the squares of the steps of a row.
func (a *adafactor) size(worker, line, from, to int) {
	sum := 0.0
	a.steps(worker, line, from, to, func(_ int, u []float32) { sum += kernel.SumSquares(u) })
	a.sums[line] = sum
}

// step changes the weights of a row, and their means if there are any.
func (a *adafactor) step(worker, line, from, to int) {
	a.steps(worker, line, from, to, func(i int, u []float32) {
		w := a.w.open(worker, i, i+len(u))
		for k := range u {
			u[k] *= a.rate
		}
		if a.m != nil {
			m := a.m.open(worker, i, i+len(u))
			for k := range u {
				u[k] = a.beta1*m[k] + (1-a.beta1)*u[k]
			}
			copy(m, u)
			a.m.close(worker, i, i+len(u))
		}
		for k := range w {
			w[k] = w[k]*a.shrink - u[k]
		}
		a.w.close(worker, i, i+len(u))
	})
}
