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
