package nn

import "spillway/graph"

// RMSNorm divides by the root mean square of the last dimension, or of groups of
// len(Weight) in it: a head norm has the weight of one head. A nil Weight is none.
type RMSNorm struct {
	Weight *Param `hf:"weight,optional"`
	Eps    float64
	Precision
}

// NewRMSNorm starts at one.
func NewRMSNorm(width int64, eps float64) *RMSNorm {
	return &RMSNorm{Weight: NewParam(Constant(1), width), Eps: eps}
}

// Forward keeps the shape.
func (n *RMSNorm) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return n.In(b, x, func(x graph.Value) graph.Value { return b.RMSNorm(x, n.Weight.orOnes(b, x), n.Eps) })
}

// LayerNorm centres and scales the last dimension. Without Weight and Bias, both nil, it is PyTorch's with elementwise_affine=False.
type LayerNorm struct {
	Weight *Param `hf:"weight,optional"`
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
	return n.In(b, x, func(x graph.Value) graph.Value {
		return b.LayerNorm(x, n.Weight.orOnes(b, x), n.Bias.Value(b), n.Eps)
	})
}

// orOnes is the param, or a one for each number of the last dimension of x where there is none.
func (p *Param) orOnes(b *graph.Builder, x graph.Value) graph.Value {
	if p != nil || b.Err() != nil {
		return p.Value(b)
	}
	return b.Expand(b.Number(x, 1), b.TypeOf(x).Shape.Last())
}
