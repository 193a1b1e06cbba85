package op

import (
	"fmt"
	"math"
	"slices"
)

// Func is a function of one number.
type Func uint8

// The functions of Unary and Gated. Some have numbers, PyTorch's in this order: Attr.Alpha is the
// negative_slope of LeakyReLU, the alpha of ELU, the exponent of Power, the beta of Softplus and the
// lower bound of Clamp; Attr.Beta is the threshold of Softplus and the upper bound of Clamp.
const (
	NoFunc Func = iota
	ReLU
	GELU     // exact: x·Φ(x)
	GELUTanh // the tanh approximation
	SiLU
	Tanh
	Sigmoid // the last that Gated has
	LeakyReLU
	ELU
	SELU
	Softplus
	Mish
	Hardswish
	Hardsigmoid
	LogSigmoid
	Softsign
	Clamp
	Exp
	Log
	Sqrt
	Rsqrt // 1/√x
	Abs
	Square
	Power
	Sin
	Cos
	Erf
	Log1p
	Expm1
	Round // to the nearest integer, halves to the even one
	Floor
	Sign
	funcs
)

var funcNames = [funcs]string{"", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "selu", "softplus", "mish", "hardswish", "hardsigmoid",
	"logsigmoid", "softsign", "clamp", "exp", "log", "sqrt", "rsqrt", "abs", "square", "power", "sin", "cos", "erf", "log1p", "expm1", "round", "floor", "sign"}

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
	Register(Op{Kind: Gated, Takes: 2, Infer: inferGated, Cost: costUnary, Reference: referenceGated})
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

func inferGated(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0]}, check(float(in, 0), same(in, 0, 1), gate(a.Func))
}

// gate refuses functions that Gated has no kernels for.
func gate(f Func) error {
	if f == NoFunc || f > Sigmoid {
		return fmt.Errorf("has no function %v; multiply by a unary of it", f)
	}
	return nil
}

// GatedGrad: operands gate, up, dy; outputs dgate, dup.
const GatedGrad Kind = "gated_grad"

func inferGatedGrad(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0], in[1]}, check(float(in, 0), same(in, 0, 1), same(in, 0, 2), gate(a.Func))
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
	referenceUnary     = each(func(c Call, x []float64) float64 { return c.Attr.function().value(x[0]) })
	referenceUnaryGrad = each(func(c Call, x []float64) float64 { return x[1] * c.Attr.function().slope(x[0]) })
	referenceGated     = each(func(c Call, x []float64) float64 { return c.Attr.function().value(x[0]) * x[1] })
)

func referenceGatedGrad(c Call, in, out []Array, _ Args) {
	for i, dy := range in[2].F {
		gate, up := in[0].F[i], in[1].F[i]
		out[0].F[i] = dy * up * c.Attr.function().slope(gate)
		out[1].F[i] = dy * c.Attr.function().value(gate)
	}
}

// geluCubic is the constant of the tanh approximation of GELU.
const geluCubic = 0.044715

func geluInner(x float64) float64 { return math.Sqrt(2/math.Pi) * (x + geluCubic*x*x*x) }

func normalCDF(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func (l *CaseList) activations() {
	for f := ReLU; f <= Sigmoid; f++ {
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
	for f := Sigmoid + 1; f < funcs; f++ {
		a := Attr{Func: f}.withNumbers()
		x := l.Sized(3, 3, 37)
		switch f {
		case Log, Sqrt, Rsqrt, Power, Log1p:
			x = Operand{x.Type, fillBy(func(_ int, u float64) float64 { return 0.05 + 2*u })}
		}
		l.Add(f.String(), Unary, a, x)
		l.Add(f.String(), UnaryGrad, a, x, l.X(3, 37))
		l.Add(f.String()+" 1", Unary, a, Operand{Type{l.DType, []int64{1}}, x.Fill})
		l.Add(f.String()+" large", Unary, a, Operand{Type{l.DType, []int64{67, 129}}, x.Fill})
	}
}
