package nn

import (
	"math"

	"spillway/graph"
)

// Linear is y = x·Wᵀ + bias, as PyTorch's.
type Linear struct {
	Weight *Param `hf:"weight"`        // [out in]
	Bias   *Param `hf:"bias,optional"` // [out]
	// Adapter is a trainable addition to a frozen weight (LoRA).
	Adapter *Adapter `hf:",optional"`
	Precision
}

// NewLinear starts as PyTorch's: uniform within 1/√in. Without bias, set Bias to nil.
func NewLinear(in, out int64) *Linear {
	init := Uniform(1 / math.Sqrt(float64(in)))
	return &Linear{Weight: NewParam(init, out, in), Bias: NewParam(init, out)}
}

// Forward maps [.. in] to [.. out].
func (l *Linear) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return l.In(b, x, func(x graph.Value) graph.Value { return l.matmul(b, x) })
}

func (l *Linear) matmul(b *graph.Builder, x graph.Value) graph.Value {
	return l.Adapter.apply(b, base{l.Weight, l.Bias, true}, x)
}

// Conv1D is a linear layer stored the other way around, as GPT-2 does: y = x·W + bias.
type Conv1D struct {
	Weight  *Param   `hf:"weight"` // [in out]
	Bias    *Param   `hf:"bias,optional"`
	Adapter *Adapter `hf:",optional"`
	Precision
}

// NewConv1D starts with a normal weight and a bias of zero.
func NewConv1D(in, out int64, std float64) *Conv1D {
	return &Conv1D{Weight: NewParam(Normal(std), in, out), Bias: NewParam(Constant(0), out)}
}

// Forward maps [.. in] to [.. out].
func (l *Conv1D) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return l.In(b, x, func(x graph.Value) graph.Value { return l.Adapter.apply(b, base{l.Weight, l.Bias, false}, x) })
}
