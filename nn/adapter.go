package nn

import "spillway/graph"

// Adapter is the low-rank addition of LoRA to a frozen linear layer W·x + bias:
//
//	y = W·x + bias + scale·(B·A·dropout(x) + B's bias)
//
// With a magnitude it is DoRA, where the adapted weights give the direction and the magnitude
// the norm of each output's weights:
//
//	y = magnitude/‖W + scale·B·A‖ · (W·x + scale·B·A·x) + bias
type Adapter struct {
	A         *Param `hf:"lora_A.weight"`                  // [rank in]
	B         *Param `hf:"lora_B.weight"`                  // [out rank]
	Bias      *Param `hf:"lora_B.bias,optional"`           // [out]
	Magnitude *Param `hf:"lora_magnitude_vector,optional"` // [out], of DoRA
	Scale     float64
	Dropout   float64
}

// base is the frozen linear layer that an adapter adds to.
type base struct {
	weight, bias *Param
	rows         bool // the weight is [out in]
}

// of is the linear layer with the given bias; nil for none.
func (p base) of(b *graph.Builder, x graph.Value, bias *Param) graph.Value {
	if !p.rows {
		return b.MatMul(x, p.weight.Value(b), bias.Value(b))
	}
	if w := p.weight.quantized(b, x); w != 0 {
		return b.QuantizedLinear(x, w, bias.Value(b), p.weight.OutlierThreshold)
	}
	return b.Linear(x, p.weight.Value(b), bias.Value(b))
}

// apply is the linear layer with the adapter's part; a nil adapter adds nothing.
func (a *Adapter) apply(b *graph.Builder, p base, x graph.Value) graph.Value {
	switch {
	case a == nil:
		return p.of(b, x, p.bias)
	case a.Magnitude == nil:
		return a.onto(b, p.of(b, x, p.bias), b.Dropout(x, a.Dropout))
	}
	return a.normalized(b, p, x)
}

// onto adds the low-rank part of x to y. The scale is applied where it is smallest: to
// [.. rank].
func (a *Adapter) onto(b *graph.Builder, y, x graph.Value) graph.Value {
	inner := b.Linear(x, a.A.Value(b), 0)
	if a.Scale != 1 {
		inner = b.Scale(inner, a.Scale)
	}
	y = b.LinearPlus(inner, a.B.Value(b), y)
	bias := a.Bias.Value(b)
	if bias == 0 {
		return y
	}
	if a.Scale != 1 {
		bias = b.Scale(bias, a.Scale)
	}
	return b.Add(y, bias)
}

// normalized is the linear layer of DoRA. As in PEFT, dropout applies to the input of the
// adapter's change only.
func (a *Adapter) normalized(b *graph.Builder, p base, x graph.Value) graph.Value {
	inverse := b.InverseNorm(p.weight.Value(b), a.A.Value(b), a.B.Value(b), a.Scale, p.rows)
	length := b.Mul(a.Magnitude.Value(b), inverse)
	dropped := b.Dropout(x, a.Dropout)
	plain := p.of(b, dropped, nil)
	y := b.Mul(a.onto(b, plain, dropped), length)
	switch {
	case dropped != x:
		return b.Add(p.of(b, x, p.bias), b.Add(y, b.Scale(plain, -1)))
	case p.bias != nil:
		return b.Add(y, p.bias.Value(b))
	}
	return y
}
