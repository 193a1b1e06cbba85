package nn

import "spillway/graph"

// RMSNorm divides by the root mean square of the last dimension, or of groups of
// len(Weight) in it: a head norm has the weight of one head.
type RMSNorm struct {
	Weight *Param `hf:"weight"`
	Eps    float64
	Precision
}

// NewRMSNorm starts at one.
func NewRMSNorm(width int64, eps float64) *RMSNorm {
	return &RMSNorm{Weight: NewParam(Constant(1), width), Eps: eps}
}

// Forward keeps the shape.
func (n *RMSNorm) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return n.In(b, x, func(x graph.Value) graph.Value { return b.RMSNorm(x, n.Weight.Value(b), n.Eps) })
}

// LayerNorm centres and scales the last dimension.
type LayerNorm struct {
	Weight *Param `hf:"weight"`
	Bias   *Param `hf:"bias,optional"`
	Eps    float64
	Precision
}

// NewLayerNorm starts at one and zero.
func NewLayerNorm(width int64, eps float64) *LayerNorm {
	return &LayerNorm{Weight: NewParam(Constant(1), width), Bias: NewParam(Constant(0), width), Eps: eps}
}

// Forward keeps the shape.
func (n *LayerNorm) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return n.In(b, x, func(x graph.Value) graph.Value { return b.LayerNorm(x, n.Weight.Value(b), n.Bias.Value(b), n.Eps) })
}
