package nn

import (
	"spillway/graph"
	"spillway/op"
)

// GatedMLP is down(f(gate(x))·up(x)), as in the Llama family.
type GatedMLP struct {
	Gate *Linear `hf:"gate_proj"`
	Up   *Linear `hf:"up_proj"`
	Down *Linear `hf:"down_proj"`
	Func op.Func
	Precision
}

// Forward maps x [.. D] to the same shape.
func (m *GatedMLP) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return m.In(b, x, func(x graph.Value) graph.Value {
		return m.Down.Forward(b, b.Gated(m.Func, m.Gate.Forward(b, x), m.Up.Forward(b, x)))
	})
}
