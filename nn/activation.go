package nn

import (
	"spillway/graph"
	"spillway/op"
)

// Activation is a layer that applies a function to each element.
type Activation op.Func

// The activations, ready to stand in a Sequential.
const (
	ReLU     = Activation(op.ReLU)
	GELU     = Activation(op.GELU)     // exact
	GELUTanh = Activation(op.GELUTanh) // the tanh approximation: GPT-2's gelu_new
	SiLU     = Activation(op.SiLU)
	Tanh     = Activation(op.Tanh)
	Sigmoid  = Activation(op.Sigmoid)

	SELU        = Activation(op.SELU)
	Mish        = Activation(op.Mish)
	Hardswish   = Activation(op.Hardswish)
	Hardsigmoid = Activation(op.Hardsigmoid)
	LogSigmoid  = Activation(op.LogSigmoid)
	Softsign    = Activation(op.Softsign)
)

// Function is an activation with numbers, see op.Func.
type Function struct {
	Func        op.Func
	Alpha, Beta float64
}

// The activations with numbers, with PyTorch's.
var (
	LeakyReLU = Function{op.LeakyReLU, 0.01, 0}
	ELU       = Function{op.ELU, 1, 0}
	Softplus  = Function{op.Softplus, 1, 20}
	ReLU6     = Function{op.Clamp, 0, 6}
	Hardtanh  = Function{op.Clamp, -1, 1}
)

// The activations that are made of others, with PyTorch's numbers.
type (
	CELU       float64 // alpha, 1 in PyTorch
	Softshrink float64 // lambda, 0.5 in PyTorch
	Hardshrink float64 // lambda, 0.5 in PyTorch
	Tanhshrink struct{}
	// GLU is the first half of an axis times the sigmoid of the second; -1 is the last axis.
	GLU int
)

// Forward keeps the shape: max(0, x) + min(0, alpha·(exp(x/alpha) - 1)).
func (alpha CELU) Forward(b *graph.Builder, x graph.Value) graph.Value {
	if alpha == 0 {
		b.Fail("celu: an alpha of %v, which divides; 1 is PyTorch's", float64(alpha))
		return 0
	}
	return b.Scale(b.Map(op.ELU, 1, 0, b.Scale(x, 1/float64(alpha))), float64(alpha))
}

// Forward keeps the shape: x, by lambda nearer to 0.
func (lambda Softshrink) Forward(b *graph.Builder, x graph.Value) graph.Value {
	if !(lambda >= 0) {
		b.Fail("softshrink: a lambda of %v; it is 0 or more, and 0.5 in PyTorch", float64(lambda))
		return 0
	}
	return b.Sub(x, b.Clamp(x, -float64(lambda), float64(lambda)))
}

// Forward keeps the shape: 0 from -lambda to lambda, else x.
func (lambda Hardshrink) Forward(b *graph.Builder, x graph.Value) graph.Value {
	far := b.Compare(op.Greater, b.Unary(op.Abs, x), b.Number(x, float64(lambda)))
	return b.Binary(op.If, far, x)
}

// Forward keeps the shape: x - tanh(x).
func (Tanhshrink) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return b.Sub(x, b.Unary(op.Tanh, x))
}

// Forward halves the axis.
func (axis GLU) Forward(b *graph.Builder, x graph.Value) graph.Value {
	s, at := b.TypeOf(x).Shape, int(axis)
	if at < 0 {
		at += len(s)
	}
	if b.Err() != nil || at < 0 || at >= len(s) || s[at]%2 != 0 {
		b.Fail("glu: the halves of axis %d of %v; it takes an axis of even length", axis, b.TypeOf(x))
		return 0
	}
	half := b.SplitAxis(x, at, s[at]/2, s[at]/2)
	return b.Gated(op.Sigmoid, half[1], half[0])
}

// Forward keeps the shape.
func (f Function) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return b.Map(f.Func, f.Alpha, f.Beta, x)
}

// PReLU is x where that is above zero, else x times a slope that is learned, of each channel or one for all.
type PReLU struct {
	Weight *Param `hf:"weight"`
}

// NewPReLU starts with a slope of 0.25.
func NewPReLU(channels int64) *PReLU { return &PReLU{NewParam(Constant(0.25), channels)} }

// Forward keeps the shape [.. C].
func (p *PReLU) Forward(b *graph.Builder, x graph.Value) graph.Value {
	if n, c := p.Weight.Shape.Elements(), b.TypeOf(x).Shape.Last(); n != 1 && n != c && b.Err() == nil {
		b.Fail("prelu: %d slopes of %v, which has %d channels; take 1 or %d", n, b.TypeOf(x), c, c)
		return 0
	}
	return b.Binary(op.PReLU, x, p.Weight.Value(b))
}

// Softmax and LogSoftmax are along an axis; -1 is the last.
type (
	Softmax    int
	LogSoftmax int
)

// Forward keeps the shape.
func (a Softmax) Forward(b *graph.Builder, x graph.Value) graph.Value { return b.Softmax(x, int(a)) }

// Forward keeps the shape.
func (a LogSoftmax) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return b.LogSoftmax(x, int(a))
}

// Forward keeps the shape.
func (a Activation) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return b.Unary(op.Func(a), x)
}

// Dropout drops this share of the elements while training and is nothing otherwise.
type Dropout float64

// Forward keeps the shape.
func (p Dropout) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return b.Dropout(x, float64(p))
}
