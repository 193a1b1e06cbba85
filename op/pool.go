package op

import (
	"fmt"
	"math"

	"spillway/shape"
)

// Pool: the largest (Attr.Reduction ReduceMax) or the mean (ReduceMean) of windows of x [B S.. C], as
// Attr.Spatial says; of equal ones the first has the gradient.
const Pool Kind = "pool"

// PoolGrad: operands x, dy of a maximum, dy alone of a mean; output dx of Attr.Shape.
const PoolGrad Kind = "pool_grad"

func init() {
	Register(Op{Kind: Pool, Takes: 1, Infer: inferPool, Cost: costPool, Reference: referencePool, Cases: (*CaseList).pools})
	Register(Op{Kind: PoolGrad, Infer: inferPoolGrad, Cost: costPool, Reference: referencePoolGrad})
}

// Windows are those of pooling, in three spatial dimensions: those that it has not come first and are 1.
type Windows struct {
	B, C                              int64
	In, Out                           [3]int64
	kernel, stride, padding, dilation [3]int64
	adaptive                          bool
	// Counted divides means: 0 where it is the number of places inside.
	counts bool
}

func (c Call) Windows() Windows {
	x := c.In[0].Shape
	if c.Kind == PoolGrad {
		x = c.Attr.Shape
	}
	w, _ := windows(c.Attr.Spatial, x)
	return w
}

func windows(s Spatial, x shape.Shape) (Windows, error) {
	n := len(x) - 2
	if n < 1 || n > 3 || len(s.Kernel) != n {
		return Windows{}, fmt.Errorf("windows %v of %v: want [B S.. C] with one to three spatial dimensions, and a size for each", s.Kernel, x)
	}
	if err := lists(s, n); err != nil {
		return Windows{}, err
	}
	one := [3]int64{1, 1, 1}
	w := Windows{B: x[0], C: x.Last(), In: one, Out: one, kernel: one, stride: one, dilation: one, adaptive: s.Adaptive, counts: s.CountPadding}
	for i := range n {
		d := 3 - n + i
		size, in := s.Kernel[i], x[1+i]
		w.In[d], w.kernel[d], w.stride[d], w.padding[d], w.dilation[d] = in, size, at(s.Stride, i, size), at(s.Padding, i, 0), at(s.Dilation, i, 1)
		if size < 1 || in < 1 || w.stride[d] < 1 || w.padding[d] < 0 || w.dilation[d] < 1 || size > 1<<20 || w.dilation[d] > 1<<20 || 2*w.padding[d] > size {
			return w, fmt.Errorf("spatial dimension %d of %v has windows of %d, stride %d, padding %d, dilation %d; padding is at most half a window", i, x, size, w.stride[d], w.padding[d], w.dilation[d])
		}
		if s.Adaptive {
			w.Out[d] = size
			continue
		}
		left := in + 2*w.padding[d] - w.dilation[d]*(size-1) - 1
		if left < 0 {
			return w, fmt.Errorf("spatial dimension %d of %v has %d places with its padding, a window takes %d", i, x, in+2*w.padding[d], w.dilation[d]*(size-1)+1)
		}
		w.Out[d] = left/w.stride[d] + 1
		if s.Ceil && left%w.stride[d] != 0 && w.Out[d]*w.stride[d] < in+w.padding[d] {
			w.Out[d]++
		}
	}
	return w, nil
}

// Range is the window of an output place along a dimension: places from first to before end, each step,
// all of them inside, and how many count in a mean.
func (w Windows) Range(d int, o int64) (first, end, step, counted int64) {
	if w.adaptive {
		first, end = o*w.In[d]/w.Out[d], ((o+1)*w.In[d]+w.Out[d]-1)/w.Out[d]
		return first, end, 1, end - first
	}
	step = w.dilation[d]
	first = o*w.stride[d] - w.padding[d]
	end = first + step*(w.kernel[d]-1) + 1
	counted = min(end, w.In[d]+w.padding[d]) - first
	for first < 0 {
		first += step
	}
	end = min(end, w.In[d])
	if !w.counts {
		counted = (end - first + step - 1) / step
	}
	return first, end, step, counted
}

// Stride, padding and so on of windows that are not adaptive, for kernels.
func (w Windows) Kernel() (kernel, stride, padding, dilation [3]int64, adaptive, counts bool) {
	return w.kernel, w.stride, w.padding, w.dilation, w.adaptive, w.counts
}

func inferPool(a Attr, in []Type) ([]Type, error) {
	if a.Reduction != ReduceMax && a.Reduction != ReduceMean {
		return nil, fmt.Errorf("takes the %v of windows, want max or mean", a.Reduction)
	}
	w, err := windows(a.Spatial, in[0].Shape)
	if err != nil {
		return nil, err
	}
	if a.Reduction == ReduceMean && w.dilation != [3]int64{1, 1, 1} {
		return nil, fmt.Errorf("means of windows have no dilation, got %v", a.Spatial.Dilation)
	}
	y := shape.Shape{w.B}
	for i := range len(in[0].Shape) - 2 {
		y = append(y, w.Out[3-(len(in[0].Shape)-2)+i])
	}
	y = append(y, w.C)
	return []Type{{in[0].DType, y}}, check(y.Check(), float(in, 0))
}

func inferPoolGrad(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1, a.Reduction == ReduceMax); err != nil {
		return nil, err
	}
	x := Type{in[0].DType, a.Shape}
	if err := check(a.Shape.Check(), float(in, 0)); err != nil {
		return nil, err
	}
	y, err := inferPool(a, []Type{x})
	if err != nil {
		return nil, err
	}
	if !in[len(in)-1].Equal(y[0]) || a.Reduction == ReduceMax && !in[0].Equal(x) {
		return nil, fmt.Errorf("the windows of %v are %v, got %v", x, y[0], in)
	}
	return []Type{x}, nil
}

func costPool(c Call) Cost {
	w := c.Windows()
	return Cost{Flops: float64(w.B*w.C*w.Out[0]*w.Out[1]*w.Out[2]) * float64(w.kernel[0]*w.kernel[1]*w.kernel[2])}
}

// each calls f for every window: the row of y, the rows of x in it, and how many count in a mean.
func (w Windows) each(f func(y int64, rows []int64, counted float64)) {
	var rows []int64
	for i := range w.B * w.Out[0] * w.Out[1] * w.Out[2] {
		b := i / (w.Out[0] * w.Out[1] * w.Out[2])
		rows = rows[:0]
		counted := 1.0
		var first, end, step [3]int64
		for d, o := range [3]int64{i / (w.Out[1] * w.Out[2]) % w.Out[0], i / w.Out[2] % w.Out[1], i % w.Out[2]} {
			var n int64
			first[d], end[d], step[d], n = w.Range(d, o)
			counted *= float64(n)
		}
		for z := first[0]; z < end[0]; z += step[0] {
			for y := first[1]; y < end[1]; y += step[1] {
				for x := first[2]; x < end[2]; x += step[2] {
					rows = append(rows, ((b*w.In[0]+z)*w.In[1]+y)*w.In[2]+x)
				}
			}
		}
		f(i, rows, counted)
	}
}

// largest is the first row with the largest number of a channel.
func largest(x []float64, rows []int64, channels, c int64) (row int64, top float64) {
	top = math.Inf(-1)
	for _, r := range rows {
		if v := x[r*channels+c]; v > top {
			row, top = r, v
		}
	}
	return row, top
}

func referencePool(c Call, in, out []Array, _ Args) {
	w := c.Windows()
	w.each(func(y int64, rows []int64, counted float64) {
		for k := range w.C {
			if c.Attr.Reduction == ReduceMax {
				_, out[0].F[y*w.C+k] = largest(in[0].F, rows, w.C, k)
				continue
			}
			sum := 0.0
			for _, r := range rows {
				sum += in[0].F[r*w.C+k]
			}
			out[0].F[y*w.C+k] = sum / counted
		}
	})
}

func referencePoolGrad(c Call, in, out []Array, _ Args) {
	w, dy := c.Windows(), in[len(in)-1].F
	clear(out[0].F)
	w.each(func(y int64, rows []int64, counted float64) {
		for k := range w.C {
			if c.Attr.Reduction == ReduceMax {
				row, _ := largest(in[0].F, rows, w.C, k)
				out[0].F[row*w.C+k] += dy[y*w.C+k]
				continue
			}
			for _, r := range rows {
				out[0].F[r*w.C+k] += dy[y*w.C+k] / counted
			}
		}
	})
}

func (l *CaseList) pools() {
	for _, k := range []struct {
		name string
		x    []int
		s    Spatial
		r    Reduction
	}{
		{"max 3x3 stride 2", []int{2, 9, 8, 5}, Spatial{Kernel: []int64{3, 3}, Stride: []int64{2, 2}, Padding: []int64{1, 1}}, ReduceMax},
		{"max 2", []int{2, 9, 8, 40}, Spatial{Kernel: []int64{2, 2}}, ReduceMax},
		{"max ceil dilated", []int{1, 10, 9, 3}, Spatial{Kernel: []int64{2, 3}, Stride: []int64{3, 2}, Dilation: []int64{2, 1}, Ceil: true}, ReduceMax},
		{"max 3x3 stride 2 wide", []int{2, 9, 8, 24}, Spatial{Kernel: []int64{3, 3}, Stride: []int64{2, 2}, Padding: []int64{1, 1}}, ReduceMax},
		{"max ceil dilated wide", []int{1, 10, 9, 16}, Spatial{Kernel: []int64{2, 3}, Stride: []int64{3, 2}, Dilation: []int64{2, 1}, Ceil: true}, ReduceMax},
		{"max 3x3 stride 2 ceil wide", []int{2, 10, 11, 16}, Spatial{Kernel: []int64{3, 3}, Stride: []int64{2, 2}, Ceil: true}, ReduceMax},
		{"max 2 padded wide", []int{2, 7, 10, 16}, Spatial{Kernel: []int64{2, 2}, Padding: []int64{1, 1}}, ReduceMax},
		{"max 1d", []int{2, 11, 4}, Spatial{Kernel: []int64{3}, Stride: []int64{1}}, ReduceMax},
		{"mean 2", []int{2, 8, 9, 5}, Spatial{Kernel: []int64{2, 2}, CountPadding: true}, ReduceMean},
		{"mean padded", []int{2, 8, 9, 5}, Spatial{Kernel: []int64{3, 3}, Stride: []int64{2, 2}, Padding: []int64{1, 1}, CountPadding: true, Ceil: true}, ReduceMean},
		{"mean inside", []int{2, 8, 9, 5}, Spatial{Kernel: []int64{3, 3}, Stride: []int64{2, 2}, Padding: []int64{1, 1}}, ReduceMean},
		{"mean 3d", []int{1, 4, 4, 5, 3}, Spatial{Kernel: []int64{2, 2, 3}}, ReduceMean},
		{"adaptive mean", []int{2, 7, 9, 5}, Spatial{Kernel: []int64{3, 4}, Adaptive: true}, ReduceMean},
		{"adaptive max", []int{2, 7, 9, 5}, Spatial{Kernel: []int64{3, 4}, Adaptive: true}, ReduceMax},
		{"all", []int{2, 7, 7, 33}, Spatial{Kernel: []int64{1, 1}, Adaptive: true}, ReduceMean},
	} {
		a, x := Attr{Spatial: k.s, Reduction: k.r}, l.X(k.x...)
		y := l.Add(k.name, Pool, a, x).Call.Out
		if len(y) == 0 {
			continue
		}
		a.Shape = x.Type.Shape
		in := []Operand{x, {y[0], Spread}}
		if k.r == ReduceMean {
			in = in[1:]
		}
		l.Add(k.name, PoolGrad, a, in...)
	}
}
