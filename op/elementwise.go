package op

import (
	"fmt"
	"slices"

	"spillway/shape"
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

// Copy: y = x; with Accumulate y += x. Scale: y = Attr.Scale·x.
func inferCopy(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1); err != nil {
		return nil, err
	}
	return []Type{in[0]}, float(in, 0)
}

// Add and Mul: elementwise; the second operand may be smaller, its shape being
// the end of the first's, and is then repeated over the outer dimensions.
func inferBroadcast(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 2); err != nil {
		return nil, err
	}
	x, y := in[0], in[1]
	cut := len(x.Shape) - len(y.Shape)
	if cut < 0 || !x.Shape[cut:].Equal(y.Shape) || x.DType != y.DType {
		return nil, fmt.Errorf("%v and %v: the second must have the type of the first and the end of its shape", x, y)
	}
	return []Type{x}, float(in, 0, 1)
}

// Unary: y = f(x).
func inferUnary(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1); err != nil {
		return nil, err
	}
	return []Type{in[0]}, check(float(in, 0), known(a.Func))
}

// UnaryGrad: dx = dy·f'(x). Operands x, dy.
func inferUnaryGrad(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 2); err != nil {
		return nil, err
	}
	return []Type{in[0]}, check(float(in, 0), same(in, 0, 1), known(a.Func))
}

// Gated: y = f(gate)·up. Operands gate, up.
func inferGated(a Attr, in []Type) ([]Type, error) { return inferUnaryGrad(a, in) }

// GatedGrad: operands gate, up, dy; outputs dgate, dup.
func inferGatedGrad(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 3); err != nil {
		return nil, err
	}
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

// Dropout: y = x/(1-p) where a random number of (key, stream, position) is at
// least p, else 0. It is its own gradient. Element i of sample s (the first
// dimension counts samples, Args.Row is the first one's global index) uses
// Uniform(key, stream, (Row+s)·elements per sample + i), compared with p as float32.
func inferDropout(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1); err != nil {
		return nil, err
	}
	return []Type{in[0]}, check(float(in, 0), rank(in, 0, 1), probability(a.Prob))
}

func probability(p float64) error {
	if !(p >= 0 && p < 1) {
		return fmt.Errorf("drop probability is %v, want 0 ≤ p < 1", p)
	}
	return nil
}

// Cast: the same numbers in another element type.
func inferCast(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1); err != nil {
		return nil, err
	}
	if !a.To.Float() || a.To.Block() {
		return nil, fmt.Errorf("to %v, want a plain real type", a.To)
	}
	return []Type{{a.To, in[0].Shape}}, float(in, 0)
}

// Dequantize: a coded weight as plain numbers; package quant says what its bytes mean.
// The numbers are products in f32, rounded once more where Attr.To is narrower.
func inferDequantize(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1); err != nil {
		return nil, err
	}
	if err := check(quantized(in, 0), rank(in, 0, 1)); err != nil {
		return nil, err
	}
	if !a.To.Float() || a.To.Block() {
		return nil, fmt.Errorf("to %v, want a plain real type", a.To)
	}
	return []Type{{a.To, in[0].Shape}}, nil
}

// Split: cuts the last dimension into parts of Attr.Sizes.
func inferSplit(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1); err != nil {
		return nil, err
	}
	if err := check(float(in, 0), rank(in, 0, 1)); err != nil {
		return nil, err
	}
	var sum int64
	out := make([]Type, len(a.Sizes))
	for i, n := range a.Sizes {
		if n <= 0 {
			return nil, fmt.Errorf("part %d has size %d", i, n)
		}
		sum += n
		out[i] = Type{in[0].DType, in[0].Shape.WithLast(n)}
	}
	if sum != in[0].Shape.Last() {
		return nil, fmt.Errorf("parts %v add up to %d, the last dimension of %v is %d", a.Sizes, sum, in[0], in[0].Shape.Last())
	}
	return out, nil
}

// Concat: joins operands along the last dimension; the inverse of Split.
func inferConcat(a Attr, in []Type) ([]Type, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("takes operands")
	}
	var sum int64
	for i, t := range in {
		if t.DType != in[0].DType || len(t.Shape) == 0 || !t.Shape[:len(t.Shape)-1].Equal(in[0].Shape[:len(in[0].Shape)-1]) {
			return nil, fmt.Errorf("operand %d is %v beside %v: only the last dimension may differ", i, t, in[0])
		}
		sum += t.Shape.Last()
	}
	return []Type{{in[0].DType, in[0].Shape.WithLast(sum)}}, float(in, 0)
}

// SumRows: sums over the outer dimensions and keeps the Attr.Keep inner ones; the
// gradient of a broadcast.
func inferSumRows(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1); err != nil {
		return nil, err
	}
	cut := int64(len(in[0].Shape)) - a.InnerDims
	if a.InnerDims < 1 || cut < 0 {
		return nil, fmt.Errorf("keeps %d dimensions of %v", a.InnerDims, in[0])
	}
	return []Type{{in[0].DType, shape.Shape(in[0].Shape[cut:])}}, float(in, 0)
}

func costSumRows(c Call) Cost { return Cost{Flops: float64(c.In[0].Shape.Elements())} }
