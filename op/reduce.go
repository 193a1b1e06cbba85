package op

import (
	"fmt"
	"math"
	"slices"

	"spillway/shape"
)

// Reduction is how Reduce makes one number of several.
type Reduction uint8

// The reductions.
const (
	NoReduction Reduction = iota
	ReduceSum
	ReduceMean
	ReduceMax // equal ones share the gradient
	ReduceMin
	ReduceProd
	ReduceLogSumExp
	reductions
)

var reductionNames = [reductions]string{"", "sum", "mean", "max", "min", "prod", "logsumexp"}

// String is the name in plans.
func (r Reduction) String() string {
	if r >= reductions {
		return fmt.Sprintf("reduction(%d)", uint8(r))
	}
	return reductionNames[r]
}

// MarshalText writes the name.
func (r Reduction) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name.
func (r *Reduction) UnmarshalText(b []byte) error {
	i := slices.Index(reductionNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown reduction %q", b)
	}
	*r = Reduction(i)
	return nil
}

func init() {
	Register(Op{Kind: Reduce, Takes: 1, Infer: inferReduce, Cost: costReduce, Reference: referenceReduce, Accumulates: firstOutput, Cases: (*CaseList).reductions})
	Register(Op{Kind: ReduceGrad, Takes: 3, Infer: inferReduceGrad, Cost: costReduce, Reference: referenceReduceGrad})
	Register(Op{Kind: Softmax, Takes: 1, Infer: inferAlong, Cost: costSoftmax, Reference: referenceSoftmax})
	Register(Op{Kind: SoftmaxGrad, Takes: 2, Infer: inferSoftmaxGrad, Cost: costSoftmax, Reference: referenceSoftmaxGrad})
	Register(Op{Kind: CumSum, Takes: 1, Infer: inferAlong, Reference: referenceCumSum})
}

// Reduce: one number of all along Attr.Dims dimensions that end at Attr.Axis, by Attr.Reduction. They
// are left out of the output's shape, or are 1 with Attr.KeepDims; what would have no dimensions is [1].
const Reduce Kind = "reduce"

// ReduceGrad: operands x, y = Reduce(x), dy; output dx.
const ReduceGrad Kind = "reduce_grad"

// Softmax along Attr.Axis, or its logarithm with Attr.Log.
const Softmax Kind = "softmax"

// SoftmaxGrad: operands y = Softmax(x), dy; output dx.
const SoftmaxGrad Kind = "softmax_grad"

// CumSum: sums of all up to each along Attr.Axis; with Attr.Inverse from each on.
const CumSum Kind = "cumsum"

func inferReduce(a Attr, in []Type) ([]Type, error) {
	s := in[0].Shape
	if a.Reduction == NoReduction || a.Reduction >= reductions {
		return nil, fmt.Errorf("has no reduction %v", a.Reduction)
	}
	if !s.Has(a.Axis, a.Dims) || s.Elements() == 0 {
		return nil, fmt.Errorf("%d dimensions that end at %d, counted from the last, of %v", max(a.Dims, 1), a.Axis, in[0])
	}
	end := int64(len(s)) - a.Axis
	first := end - max(a.Dims, 1)
	out := slices.Clone(s[:first])
	if a.KeepDims {
		for range end - first {
			out = append(out, 1)
		}
	}
	if out = append(out, s[end:]...); len(out) == 0 {
		out = shape.Shape{1}
	}
	return []Type{{in[0].DType, out}}, float(in, 0)
}

func inferReduceGrad(a Attr, in []Type) ([]Type, error) {
	y, err := inferReduce(a, in[:1])
	if err == nil && !y[0].Equal(in[1]) {
		err = fmt.Errorf("operand 1 is %v, want %v", in[1], y[0])
	}
	return []Type{in[0]}, check(err, same(in, 1, 2))
}

func inferAlong(a Attr, in []Type) ([]Type, error) {
	if !in[0].Shape.Has(a.Axis, 1) {
		return nil, fmt.Errorf("%v has no dimension %d, counted from the last", in[0], a.Axis)
	}
	return []Type{in[0]}, float(in, 0)
}

func inferSoftmaxGrad(a Attr, in []Type) ([]Type, error) {
	out, err := inferAlong(a, in[:1])
	return out, check(err, same(in, 0, 1))
}

func costReduce(c Call) Cost  { return Cost{Flops: 2 * float64(c.In[0].Shape.Elements())} }
func costSoftmax(c Call) Cost { return Cost{Flops: 12 * float64(c.In[0].Shape.Elements())} }

// lines calls f for each line along the axis of a tensor: its first element, how many it has, and how
// many elements lie between them. n counts the lines.
func (c Call) lines(f func(n, first, count, step int64)) {
	outer, along, inner := c.In[0].Shape.Around(c.Attr.Axis, c.Attr.Dims)
	for o := range outer {
		for i := range inner {
			f(o*inner+i, o*along*inner+i, along, inner)
		}
	}
}

func referenceReduce(c Call, in, out []Array, _ Args) {
	c.lines(func(n, first, count, step int64) {
		x := func(k int64) float64 { return in[0].F[first+k*step] }
		result, top := x(0), x(0)
		for k := int64(1); k < count; k++ {
			top = max(top, x(k))
			switch c.Attr.Reduction {
			case ReduceMax:
				result = max(result, x(k))
			case ReduceMin:
				result = min(result, x(k))
			case ReduceProd:
				result *= x(k)
			default:
				result += x(k)
			}
		}
		switch c.Attr.Reduction {
		case ReduceMean:
			result /= float64(count)
		case ReduceLogSumExp:
			sum := 0.0
			for k := range count {
				sum += math.Exp(x(k) - top)
			}
			result = top + math.Log(sum)
		}
		out[0].F[n] = result
	})
}

func referenceReduceGrad(c Call, in, out []Array, _ Args) {
	c.lines(func(n, first, count, step int64) {
		y, dy, equal := in[1].F[n], in[2].F[n], 0.0
		for k := range count {
			equal += choose(in[0].F[first+k*step] == y, 1, 0)
		}
		for k := range count {
			x, dx := in[0].F[first+k*step], 0.0
			switch c.Attr.Reduction {
			case ReduceSum:
				dx = dy
			case ReduceMean:
				dx = dy / float64(count)
			case ReduceMax, ReduceMin:
				dx = choose(x == y, dy/equal, 0)
			case ReduceProd:
				dx = dy
				for j := range count {
					if j != k {
						dx *= in[0].F[first+j*step]
					}
				}
			case ReduceLogSumExp:
				dx = dy * math.Exp(x-y)
			}
			out[0].F[first+k*step] = dx
		}
	})
}

func referenceSoftmax(c Call, in, out []Array, _ Args) {
	c.lines(func(_, first, count, step int64) {
		top, sum := math.Inf(-1), 0.0
		for k := range count {
			top = max(top, in[0].F[first+k*step])
		}
		for k := range count {
			sum += math.Exp(in[0].F[first+k*step] - top)
		}
		for k := range count {
			x := in[0].F[first+k*step] - top
			out[0].F[first+k*step] = choose(c.Attr.Log, x-math.Log(sum), math.Exp(x)/sum)
		}
	})
}

// dx = y·(dy - Σ dy·y), of the logarithm dy - e^y·Σ dy.
func referenceSoftmaxGrad(c Call, in, out []Array, _ Args) {
	c.lines(func(_, first, count, step int64) {
		sum := 0.0
		for k := first; k < first+count*step; k += step {
			sum += in[1].F[k] * choose(c.Attr.Log, 1, in[0].F[k])
		}
		for k := first; k < first+count*step; k += step {
			y, dy := in[0].F[k], in[1].F[k]
			out[0].F[k] = choose(c.Attr.Log, dy-math.Exp(y)*sum, y*(dy-sum))
		}
	})
}

func referenceCumSum(c Call, in, out []Array, _ Args) {
	c.lines(func(_, first, count, step int64) {
		sum := 0.0
		for k := range count {
			if c.Attr.Inverse {
				k = count - 1 - k
			}
			sum += in[0].F[first+k*step]
			out[0].F[first+k*step] = sum
		}
	})
}

func (l *CaseList) reductions() {
	for r := ReduceSum; r < reductions; r++ {
		for _, s := range []struct {
			dims       []int
			axis, span int64
		}{{[]int{3, 37}, 0, 1}, {[]int{5, 19}, 1, 1}, {[]int{2, 3, 4, 5}, 1, 2}, {[]int{3, 4}, 0, 2}, {[]int{3, 517}, 0, 1}, {[]int{2, 130, 33}, 1, 1}} {
			a := Attr{Reduction: r, Axis: s.axis, Dims: s.span}
			x := l.X(s.dims...)
			if r == ReduceProd {
				x.Fill = fillBy(func(_ int, u float64) float64 { return 0.95 + 0.1*u })
			}
			name := fmt.Sprint(r, " ", s.dims, s.axis, s.span)
			l.Both(name, Reduce, a, x)
			if r == ReduceSum || r == ReduceMean { // their gradients are expansions
				continue
			}
			y, _ := inferReduce(a, []Type{x.Type})
			if r == ReduceMax || r == ReduceMin { // y must be one of x: some of them are equal
				x = l.Constant(0.5, s.dims...)
			}
			l.Add(name, ReduceGrad, a, x, Operand{y[0], fillBy(func(int, float64) float64 { return 0.5 })}, Operand{y[0], Spread})
		}
	}
	l.Add("keep", Reduce, Attr{Reduction: ReduceMean, Axis: 1, Dims: 2, KeepDims: true}, l.X(2, 7, 7, 12))
	l.Add("tall", Reduce, Attr{Reduction: ReduceSum, Axis: 1}, l.X(1500, 40)).Large = true
	l.Add("sum", ReduceGrad, Attr{Reduction: ReduceSum}, l.X(3, 5), l.X(3), l.X(3))
	for _, logs := range []bool{false, true} {
		for _, axis := range []int64{0, 1, 2} {
			name := fmt.Sprint("axis ", axis, " log ", logs)
			a := Attr{Axis: axis, Log: logs}
			l.Add(name, Softmax, a, l.Sized(5, 4, 9, 35))
			l.Add(name, SoftmaxGrad, a, l.X(4, 9, 35), l.X(4, 9, 35))
		}
		l.Add(fmt.Sprint("wide log ", logs), Softmax, Attr{Log: logs}, l.Sized(5, 3, 1030))
	}
	for _, axis := range []int64{0, 1} {
		l.Add(fmt.Sprint("axis ", axis), CumSum, Attr{Axis: axis}, l.X(3, 9, 35))
		l.Add(fmt.Sprint("back axis ", axis), CumSum, Attr{Axis: axis, Inverse: true}, l.X(3, 9, 35))
	}
}
