package graph

import (
	"spillway/dtype"
	"spillway/op"
)

// Readable forms of Apply, one per op that model code uses.

// Linear is x·Wᵀ (+ bias), W [out in]. A bias of no value is left out.
func (b *Builder) Linear(x, w, bias Value) Value {
	return b.matmul(op.Attr{TransB: true}, x, w, bias)
}

// MatMul is x·w (+ bias), w [in out].
func (b *Builder) MatMul(x, w, bias Value) Value { return b.matmul(op.Attr{}, x, w, bias) }

func (b *Builder) matmul(a op.Attr, x, w, bias Value) Value {
	if bias == 0 {
		return b.Apply(op.MatMul, a, x, w)[0]
	}
	a.Bias = true
	return b.Apply(op.MatMul, a, x, w, bias)[0]
}

// LinearPlus is x·Wᵀ + y, W [out in].
func (b *Builder) LinearPlus(x, w, y Value) Value {
	return b.Apply(op.MatMul, op.Attr{TransB: true, Plus: true}, x, w, y)[0]
}

// InverseNorm is 1 over the norm of each output's weights in w + scale·b·a; w is [out in]
// with rows, else [in out]. It counts as a constant in gradients.
func (b *Builder) InverseNorm(w, a, up Value, scale float64, rows bool) Value {
	return b.Apply(op.InverseNorm, op.Attr{TransB: rows, Scale: scale}, w, a, up)[0]
}

// QuantizedLinear is x·Wᵀ (+ bias) of a weight in a block format; outliers is the threshold
// of LLM.int8, 0 for none.
func (b *Builder) QuantizedLinear(x, w, bias Value, outliers float64) Value {
	a := op.Attr{OutlierThreshold: outliers, Bias: bias != 0}
	if bias == 0 {
		return b.Apply(op.QuantizedMatmul, a, x, w)[0]
	}
	return b.Apply(op.QuantizedMatmul, a, x, w, bias)[0]
}

// Embedding looks ids up in a table.
func (b *Builder) Embedding(ids, table Value) Value {
	return b.Apply(op.Embedding, op.Attr{}, ids, table)[0]
}

// Add sums; y may be smaller and is then repeated over the outer dimensions.
func (b *Builder) Add(x, y Value) Value { return b.Apply(op.Add, op.Attr{}, x, y)[0] }

// Mul multiplies elementwise, with the same rule for y.
func (b *Builder) Mul(x, y Value) Value { return b.Apply(op.Mul, op.Attr{}, x, y)[0] }

// Scale multiplies by a constant.
func (b *Builder) Scale(x Value, by float64) Value {
	return b.Apply(op.Scale, op.Attr{Scale: by}, x)[0]
}

// Unary applies a function to each element.
func (b *Builder) Unary(f op.Func, x Value) Value { return b.Apply(op.Unary, op.Attr{Func: f}, x)[0] }

// Gated is f(gate)·up.
func (b *Builder) Gated(f op.Func, gate, up Value) Value {
	return b.Apply(op.Gated, op.Attr{Func: f}, gate, up)[0]
}

// Dropout drops elements while training and is nothing otherwise.
func (b *Builder) Dropout(x Value, p float64) Value {
	if p == 0 || b.Task != Train && !b.Outputs {
		return x
	}
	return b.Apply(op.Dropout, op.Attr{Prob: p, Stream: b.Stream()}, x)[0]
}

// Cast changes the element type.
func (b *Builder) Cast(x Value, to dtype.Type) Value {
	if b.TypeOf(x).DType == to {
		return x
	}
	return b.Apply(op.Cast, op.Attr{To: to}, x)[0]
}

// Dequantize makes plain numbers of a block-quantized weight.
func (b *Builder) Dequantize(w Value) Value {
	return b.Apply(op.Dequantize, op.Attr{To: b.DType}, w)[0]
}

// Split cuts the last dimension.
func (b *Builder) Split(x Value, sizes ...int64) []Value {
	return b.Apply(op.Split, op.Attr{Sizes: sizes}, x)
}

// Concat joins along the last dimension.
func (b *Builder) Concat(xs ...Value) Value { return b.Apply(op.Concat, op.Attr{}, xs...)[0] }

// RMSNorm normalizes by the root mean square of groups of len(w) elements.
func (b *Builder) RMSNorm(x, w Value, eps float64) Value {
	return b.Apply(op.RMSNorm, op.Attr{Eps: eps}, x, w)[0]
}

// LayerNorm normalizes rows; a bias of no value is left out.
func (b *Builder) LayerNorm(x, w, bias Value, eps float64) Value {
	if bias == 0 {
		return b.Apply(op.LayerNorm, op.Attr{Eps: eps}, x, w)[0]
	}
	return b.Apply(op.LayerNorm, op.Attr{Eps: eps, Bias: true}, x, w, bias)[0]
}

// Rope rotates heads by position.
func (b *Builder) Rope(x, positions, freq Value, heads int64, scale float64) Value {
	return b.Apply(op.Rope, op.Attr{Heads: heads, Scale: scale}, x, positions, freq)[0]
}

// AttentionMasks are the optional operands of attention.
type AttentionMasks struct{ Segments, KeyMask, Mask Value }

// Attention of the given heads. Attr needs Heads, KVHeads, Scale and, as wanted,
// Causal, Window and Prob.
func (b *Builder) Attention(a op.Attr, q, k, v Value, m AttentionMasks) Value {
	if b.Task == Generate {
		b.Fail("this attention has no cache, so the model cannot generate; causal models call nn.CausalAttention")
		return 0
	}
	in := []Value{q, k, v}
	for _, part := range []struct {
		v    Value
		flag *bool
	}{{m.Segments, &a.Segments}, {m.KeyMask, &a.KeyMask}, {m.Mask, &a.Mask}} {
		if part.v != 0 {
			*part.flag = true
			in = append(in, part.v)
		}
	}
	if a.Segments {
		a.Document = b.Document
	}
	if b.Task != Train && !b.Outputs {
		a.Prob = 0
	}
	if a.Prob > 0 {
		a.Stream = b.Stream()
	}
	return b.Apply(op.Attention, a, in...)[0]
}

// LinearCrossEntropy is the loss of the logits x·Wᵀ (the lm_head).
func (b *Builder) LinearCrossEntropy(x, w, targets, scale Value) Value {
	return b.Apply(op.LinearCrossEntropy, op.Attr{}, x, w, targets, scale)[0]
}

// CrossEntropy is the loss of given logits.
func (b *Builder) CrossEntropy(logits, targets, scale Value) Value {
	return b.Apply(op.CrossEntropy, op.Attr{}, logits, targets, scale)[0]
}

// MeanSquare is scale times the summed squared difference.
func (b *Builder) MeanSquare(x, target, scale Value) Value {
	return b.Apply(op.MeanSquare, op.Attr{}, x, target, scale)[0]
}
