package op

import (
	"fmt"
	"math"
	"slices"
)

// Func is a function of one number.
type Func uint8

// The functions of Unary and Gated.
const (
	NoFunc Func = iota
	ReLU
	GELU     // exact: x·Φ(x)
	GELUTanh // the tanh approximation
	SiLU
	Tanh
	Sigmoid
	funcs
)

var funcNames = [funcs]string{"", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"}

// String is the name in plans.
func (f Func) String() string {
	if f >= funcs {
		return fmt.Sprintf("func(%d)", uint8(f))
	}
	return funcNames[f]
}

// MarshalText writes the name.
func (f Func) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the name.
func (f *Func) UnmarshalText(b []byte) error {
	i := slices.Index(funcNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown function %q", b)
	}
	*f = Func(i)
	return nil
}

func init() {
	Register(Op{Kind: Unary, Takes: 1, Infer: inferUnary, Cost: costUnary, Reference: referenceUnary, Cases: (*CaseList).activations})
	Register(Op{Kind: UnaryGrad, Takes: 2, Infer: inferUnaryGrad, Cost: costUnary, Reference: referenceUnaryGrad})
	Register(Op{Kind: Gated, Takes: 2, Infer: inferUnaryGrad, Cost: costUnary, Reference: referenceGated})
	Register(Op{Kind: GatedGrad, Takes: 3, Infer: inferGatedGrad, Cost: costUnary, Reference: referenceGatedGrad})
}

// Unary: y = f(x).
const Unary Kind = "unary"

func inferUnary(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0]}, check(float(in, 0), known(a.Func))
}

// UnaryGrad: dx = dy·f'(x). Operands x, dy.
const UnaryGrad Kind = "unary_grad"

func inferUnaryGrad(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0]}, check(float(in, 0), same(in, 0, 1), known(a.Func))
}

// Gated: y = f(gate)·up. Operands gate, up.
const Gated Kind = "gated"

// GatedGrad: operands gate, up, dy; outputs dgate, dup.
const GatedGrad Kind = "gated_grad"

func inferGatedGrad(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0], in[1]}, check(float(in, 0), same(in, 0, 1), same(in, 0, 2), known(a.Func))
}

func known(f Func) error {
	if f == NoFunc || f >= funcs {
		return fmt.Errorf("has no function %v", f)
	}
	return nil
}

// costUnary counts twelve operations per element: an exponential and a division.
func costUnary(c Call) Cost { return Cost{Flops: 12 * float64(c.Out[0].Shape.Elements())} }

var (
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

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func (l *CaseList) activations() {
	for f := ReLU; f < funcs; f++ {
		a := Attr{Func: f}
		for _, size := range []float64{3, 30} {
			name := fmt.Sprintf("%v to %v", f, size)
			l.Add(name, Unary, a, l.Sized(size, 3, 37))
			l.Add(name, UnaryGrad, a, l.Sized(size, 3, 37), l.X(3, 37))
			l.Add(name, Gated, a, l.Sized(size, 3, 37), l.X(3, 37))
			l.Add(name, GatedGrad, a, l.Sized(size, 3, 37), l.X(3, 37), l.X(3, 37))
		}
		l.Add(f.String()+" 1", Unary, a, l.X(1))
		l.Add(f.String()+" 1", GatedGrad, a, l.X(1), l.X(1), l.X(1))
	}
}
