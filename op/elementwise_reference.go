package op

import (
	"math"
	"slices"
)

var (
	referenceCopy  = each(func(c Call, x []float64) float64 { return x[0] })
	referenceAdd   = each(func(c Call, x []float64) float64 { return x[0] + x[1] })
	referenceMul   = each(func(c Call, x []float64) float64 { return x[0] * x[1] })
	referenceScale = each(func(c Call, x []float64) float64 { return c.Attr.Scale * x[0] })

	referenceUnary     = each(func(c Call, x []float64) float64 { return c.Attr.Func.value(x[0]) })
	referenceUnaryGrad = each(func(c Call, x []float64) float64 { return x[1] * c.Attr.Func.slope(x[0]) })
	referenceGated     = each(func(c Call, x []float64) float64 { return c.Attr.Func.value(x[0]) * x[1] })
)

func referenceGatedGrad(c Call, in, out []Array, _ Args) {
	for i, dy := range in[2].F {
		gate, up := in[0].F[i], in[1].F[i]
		out[0].F[i] = dy * up * c.Attr.Func.slope(gate)
		out[1].F[i] = dy * c.Attr.Func.value(gate)
	}
}

// value is f(x).
func (f Func) value(x float64) float64 {
	switch f {
	case ReLU:
		return max(x, 0)
	case GELU:
		return x * normalCDF(x)
	case GELUTanh:
		return x / 2 * (1 + math.Tanh(geluInner(x)))
	case SiLU:
		return x * sigmoid(x)
	case Tanh:
		return math.Tanh(x)
	case Sigmoid:
		return sigmoid(x)
	}
	return math.NaN()
}

// slope is f'(x).
func (f Func) slope(x float64) float64 {
	switch f {
	case ReLU:
		if x > 0 {
			return 1
		}
		return 0
	case GELU:
		return normalCDF(x) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
	case GELUTanh:
		t := math.Tanh(geluInner(x))
		return (1+t)/2 + x/2*(1-t*t)*math.Sqrt(2/math.Pi)*(1+3*geluCubic*x*x)
	case SiLU:
		s := sigmoid(x)
		return s * (1 + x*(1-s))
	case Tanh:
		t := math.Tanh(x)
		return 1 - t*t
	case Sigmoid:
		s := sigmoid(x)
		return s * (1 - s)
	}
	return math.NaN()
}

// geluCubic is the constant of the tanh approximation of GELU.
const geluCubic = 0.044715

func geluInner(x float64) float64 { return math.Sqrt(2/math.Pi) * (x + geluCubic*x*x*x) }
func normalCDF(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
func sigmoid(x float64) float64   { return 1 / (1 + math.Exp(-x)) }

func referenceDropout(c Call, in, out []Array, args Args) {
	first := args.Row * uint64(c.In[0].Shape[1:].Elements())
	for i, x := range in[0].F {
		out[0].F[i] = x * dropFactor(c.Attr, args, first+uint64(i))
	}
}

// dropFactor is what dropout multiplies the element at a position of its stream by.
func dropFactor(a Attr, args Args, position uint64) float64 {
	if Uniform(args.Key, a.Stream, position) < float32(a.Prob) {
		return 0
	}
	return 1 / (1 - a.Prob)
}

func referenceSplit(c Call, in, out []Array, _ Args) {
	var at int64
	wide := rows(in[0].F, c.In[0].Shape.Last())
	for part, size := range c.Attr.Sizes {
		for n, row := range rows(out[part].F, size) {
			copy(row, wide[n][at:])
		}
		at += size
	}
}

func referenceConcat(c Call, in, out []Array, _ Args) {
	var at int64
	wide := rows(out[0].F, c.Out[0].Shape.Last())
	for _, part := range in {
		size := part.Type.Shape.Last()
		for n, row := range rows(part.F, size) {
			copy(wide[n][at:], row)
		}
		at += size
	}
}

func referenceSumRows(c Call, in, out []Array, _ Args) {
	clear(out[0].F)
	for row := range slices.Chunk(in[0].F, len(out[0].F)) {
		axpy(1, row, out[0].F)
	}
}
