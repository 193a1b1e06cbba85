package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/op"
)

func init() {
	Register(op.Reduce, reduction)
	Register(op.ReduceGrad, reductionGrad)
	Register(op.Softmax, softmax)
	Register(op.SoftmaxGrad, softmaxGrad)
	Register(op.CumSum, cumSum)
}

// lines is a tensor as lines along its axis: line n begins at n/inner·along·inner + n%inner, and its
// elements lie inner apart.
type lines struct{ outer, along, inner int }

func linesOf(c op.Call) lines {
	outer, along, inner := c.In[0].Shape.Around(c.Attr.Axis, c.Attr.Dims)
	return lines{int(outer), int(along), int(inner)}
}

// strip is how many neighbouring lines are worked on together, so that memory is read along rows.
const strip = 256

// strips makes a program that works on strips of neighbouring lines: row k of a strip is width elements
// at at + k·inner, and its results are from line on.
func (s lines) strips(set func(l *device.Launch), do func(worker, at, width, line int)) Program {
	width := min(strip, s.inner)
	per := (s.inner + width - 1) / width
	work := rowsOf(int64(s.outer*per), int64(s.along*width), func(worker, from, to int) {
		for i := from; i < to; i++ {
			o, k := i/per, i%per*width
			do(worker, o*s.along*s.inner+k, min(width, s.inner-k), o*s.inner+k)
		}
	})
	return work.program(0, set)
}

func reduction(c op.Call, workers int) Program {
	s, o, r := linesOf(c), &pair{}, c.Attr.Reduction
	// put adds to a result that accumulates.
	put := func(line int, v float32) {
		if c.Attr.Accumulate {
			v += o.y[line]
		}
		o.y[line] = v
	}
	if s.inner == 1 {
		return s.strips(o.set, func(_, at, _, line int) { put(line, reduceLine(r, o.x[at:at+s.along])) })
	}
	room := make([][2][strip]float32, workers)
	return s.strips(o.set, func(worker, at, width, line int) {
		sum, top := room[worker][0][:width], room[worker][1][:width]
		copy(sum, o.x[at:])
		for k := 1; k < s.along; k++ {
			row := o.x[at+k*s.inner:][:width]
			switch r {
			case op.ReduceSum, op.ReduceMean:
				kernel.AddScaled(sum, row, 1)
			case op.ReduceProd:
				kernel.Mul(sum, sum, row)
			case op.ReduceMin:
				for i, v := range row {
					sum[i] = min(sum[i], v)
				}
			default:
				for i, v := range row {
					sum[i] = max(sum[i], v)
				}
			}
		}
		switch r {
		case op.ReduceMean:
			kernel.Scale(sum, sum, 1/float32(s.along))
		case op.ReduceLogSumExp:
			copy(top, sum)
			clear(sum)
			for k := range s.along {
				for i, v := range o.x[at+k*s.inner:][:width] {
					sum[i] += float32(math.Exp(float64(v - top[i])))
				}
			}
			for i := range sum {
				sum[i] = top[i] + float32(math.Log(float64(sum[i])))
			}
		}
		for i, v := range sum {
			put(line+i, v)
		}
	})
}

// reduceLine reduces numbers that lie one behind the other.
func reduceLine(r op.Reduction, x []float32) float32 {
	switch r {
	case op.ReduceSum:
		return float32(kernel.Sum(x))
	case op.ReduceMean:
		return float32(kernel.Sum(x) / float64(len(x)))
	case op.ReduceMax:
		return kernel.Max(x)
	case op.ReduceLogSumExp:
		top, sum := kernel.Max(x), 0.0
		for _, v := range x {
			sum += math.Exp(float64(v - top))
		}
		return top + float32(math.Log(sum))
	}
	least, product := x[0], 1.0
	for _, v := range x {
		least = min(least, v)
		product *= float64(v)
	}
	if r == op.ReduceMin {
		return least
	}
	return float32(product) // long ones lose digits in f32
}

func reductionGrad(c op.Call, _ int) Program {
	s, r := linesOf(c), c.Attr.Reduction
	var x, y, dy, dx []float32
	set := func(l *device.Launch) { x, y, dy, dx = F32(l, 0), F32(l, 1), F32(l, 2), F32(l, 3) }
	return s.strips(set, func(_, at, width, line int) {
		for i := range width {
			first, end := at+i, at+i+s.along*s.inner
			reduceGradLine(r, x[first:], dx[first:], end-first, s.inner, y[line+i], dy[line+i])
		}
	})
}

// reduceGradLine is the gradient of a line whose elements lie step apart.
func reduceGradLine(r op.Reduction, x, dx []float32, end, step int, y, dy float32) {
	switch r {
	case op.ReduceMax, op.ReduceMin:
		equal := 0
		for k := 0; k < end; k += step {
			if x[k] == y {
				equal++
			}
		}
		dy /= float32(max(equal, 1))
	case op.ReduceMean:
		dy /= float32(end / step)
	case op.ReduceProd:
		prodGradLine(x, dx, end, step, dy)
		return
	}
	for k := 0; k < end; k += step {
		switch {
		case r == op.ReduceLogSumExp:
			dx[k] = dy * float32(math.Exp(float64(x[k]-y)))
		case r == op.ReduceSum || r == op.ReduceMean || x[k] == y:
			dx[k] = dy
		default:
			dx[k] = 0
		}
	}
}

// prodGradLine multiplies what lies before each element by what lies behind it, which also holds where
// one is zero.
func prodGradLine(x, dx []float32, end, step int, dy float32) {
	before := float64(dy)
	for k := 0; k < end; k += step {
		dx[k] = float32(before)
		before *= float64(x[k])
	}
	behind := 1.0
	for k := end - step; k >= 0; k -= step {
		dx[k] = float32(float64(dx[k]) * behind)
		behind *= float64(x[k])
	}
}

func softmax(c op.Call, workers int) Program {
	s, o := linesOf(c), &pair{}
	if s.inner == 1 {
		return s.strips(o.set, func(_, at, _, _ int) {
			x, y := o.x[at:at+s.along], o.y[at:at+s.along]
			top := kernel.Max(x)
			sum := kernel.ExpSum(y, x, top)
			if !c.Attr.Log {
				kernel.Scale(y, y, float32(1/sum))
				return
			}
			shift := top + float32(math.Log(sum))
			for i, v := range x {
				y[i] = v - shift
			}
		})
	}
	room := make([][2][strip]float32, workers)
	return s.strips(o.set, func(worker, at, width, _ int) {
		top, sum := room[worker][0][:width], room[worker][1][:width]
		clear(sum)
		copy(top, o.x[at:])
		for k := 1; k < s.along; k++ {
			for i, v := range o.x[at+k*s.inner:][:width] {
				top[i] = max(top[i], v)
			}
		}
		for k := range s.along {
			x, y := o.x[at+k*s.inner:][:width], o.y[at+k*s.inner:][:width]
			for i, v := range x {
				y[i] = v - top[i]
			}
			kernel.Exp(y, y)
			kernel.AddScaled(sum, y, 1)
		}
		for i, v := range sum {
			sum[i] = 1 / v
			if c.Attr.Log {
				sum[i] = top[i] + float32(math.Log(float64(v)))
			}
		}
		for k := range s.along {
			x, y := o.x[at+k*s.inner:][:width], o.y[at+k*s.inner:][:width]
			if !c.Attr.Log {
				kernel.Mul(y, y, sum)
				continue
			}
			for i, v := range x {
				y[i] = v - sum[i]
			}
		}
	})
}

func softmaxGrad(c op.Call, _ int) Program {
	s, o := linesOf(c), &triple{}
	return s.strips(o.set, func(_, at, width, _ int) {
		var room [strip]float64
		sum := room[:width]
		for k := range s.along {
			y, dy := o.x[at+k*s.inner:][:width], o.y[at+k*s.inner:][:width]
			for i, d := range dy {
				if c.Attr.Log {
					sum[i] += float64(d)
				} else {
					sum[i] += float64(d) * float64(y[i])
				}
			}
		}
		for k := range s.along {
			from := at + k*s.inner
			y, dy, dx := o.x[from:][:width], o.y[from:][:width], o.z[from:][:width]
			for i, d := range dy {
				if c.Attr.Log {
					dx[i] = d - float32(math.Exp(float64(y[i]))*sum[i])
				} else {
					dx[i] = y[i] * (d - float32(sum[i]))
				}
			}
		}
	})
}

func cumSum(c op.Call, _ int) Program {
	s, o := linesOf(c), &pair{}
	return s.strips(o.set, func(_, at, width, _ int) {
		var room [strip]float64
		sum := room[:width]
		for k := range s.along {
			if c.Attr.Inverse {
				k = s.along - 1 - k
			}
			from := at + k*s.inner
			y := o.y[from:][:width]
			for i, v := range o.x[from:][:width] {
				sum[i] += float64(v)
				y[i] = float32(sum[i])
			}
		}
	})
}
