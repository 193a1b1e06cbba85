package nn

import (
	"math"

	"spillway/graph"
)

// Linear is y = x·Wᵀ + bias, as PyTorch's.
type Linear struct {
	Weight *Param `hf:"weight"`        // [out in]
	Bias   *Param `hf:"bias,optional"` // [out]
	// Adapter is a trainable addition beside a frozen weight (LoRA).
	Adapter *Adapter `hf:",optional"`
}

// NewLinear starts as PyTorch's: uniform within 1/√in. Without bias, set Bias to nil.
func NewLinear(in, out int64) *Linear {
	init := Uniform(1 / math.Sqrt(float64(in)))
	return &Linear{Weight: NewParam(init, out, in), Bias: NewParam(init, out)}
}

// Forward maps [.. in] to [.. out].
func (l *Linear) Forward(b *graph.Builder, x graph.Value) graph.Value {
	y := b.Linear(x, l.Weight.Value(b), l.Bias.Value(b))
	return l.Adapter.add(b, x, y)
}

// Conv1D is a linear layer stored the other way around, as GPT-2 does: y = x·W + bias.
type Conv1D struct {
	Weight  *Param   `hf:"weight"` // [in out]
	Bias    *Param   `hf:"bias,optional"`
	Adapter *Adapter `hf:",optional"`
}

// NewConv1D starts with a normal weight and a bias of zero.
func NewConv1D(in, out int64, std float64) *Conv1D {
	return &Conv1D{Weight: NewParam(Normal(std), in, out), Bias: NewParam(Constant(0), out)}
}

// Forward maps [.. in] to [.. out].
func (l *Conv1D) Forward(b *graph.Builder, x graph.Value) graph.Value {
	y := b.MatMul(x, l.Weight.Value(b), l.Bias.Value(b))
	return l.Adapter.add(b, x, y)
}

// Adapter is the low-rank addition of LoRA: scale · dropout(x)·Aᵀ·Bᵀ.
type Adapter struct {
	A       *Param `hf:"lora_A.weight"` // [rank in]
	B       *Param `hf:"lora_B.weight"` // [out rank]
	Scale   float64
	Dropout float64
}

// add puts the adapter's part on y; a nil adapter adds nothing.
func (a *Adapter) add(b *graph.Builder, x, y graph.Value) graph.Value {
	if a == nil {
		return y
	}
	low := b.Linear(b.Dropout(x, a.Dropout), a.A.Value(b), 0)
	return b.LinearPlus(b.Scale(low, a.Scale), a.B.Value(b), y)
}
