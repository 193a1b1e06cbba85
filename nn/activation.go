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
)

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
