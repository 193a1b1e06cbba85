package graph

import (
	"math"
	"slices"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// Readable forms of Apply, one per op that model code uses.

// Linear is x·Wᵀ (+ bias), W [out in]. A bias of no value is left out.
func (b *Builder) Linear(x, w, bias Value) Value {
	return b.matmul(op.Attr{TransB: true}, x, b.matrix(w), bias)
}

// MatMul is x·w (+ bias), w [in out].
func (b *Builder) MatMul(x, w, bias Value) Value { return b.matmul(op.Attr{}, x, b.matrix(w), bias) }

// matrix refuses a weight of other than two dimensions, whose rows the op would count as those of one matrix.
func (b *Builder) matrix(w Value) Value {
	if t := b.TypeOf(w); w != 0 && b.err == nil && len(t.Shape) != 2 {
		b.Fail("%s: the weight is %v with %d dimensions, want 2; BatchMatMul multiplies several matrices", op.MatMul, t, len(t.Shape))
	}
	return w
}

// BatchMatMul is PyTorch's torch.matmul: the product of the matrices in the last two dimensions of x and y,
// or of their transposes, for all batches before them, which broadcast. A vector is a row on the left and a
// column on the right, and the result has no such dimension.
func (b *Builder) BatchMatMul(x, y Value, transX, transY bool) Value {
	s, t := b.TypeOf(x).Shape, b.TypeOf(y).Shape
	if b.err != nil {
		return 0
	}
	if len(s) == 0 || len(t) == 0 || len(s) == 1 && transX || len(t) == 1 && transY {
		b.Fail("the matmul of %v (transposed: %v) and %v (transposed: %v) needs vectors or matrices, of which only matrices are transposed", b.TypeOf(x), transX, b.TypeOf(y), transY)
		return 0
	}
	row, column := len(s) == 1, len(t) == 1
	if row {
		x, s = b.Reshape(x, 1, s[0]), shape.Shape{1, s[0]}
	}
	if column {
		y, t = b.Reshape(y, t[0], 1), shape.Shape{t[0], 1}
	}
	out := b.batched(op.Attr{TransA: transX, TransB: transY}, x, y, s, t)
	if b.err != nil || !row && !column {
		return out
	}
	dims := slices.Clone(b.TypeOf(out).Shape)
	if column {
		dims = dims[:len(dims)-1]
	}
	if row { // [.. 1 N], or [.. 1] without the column
		at := len(dims) - 1
		if !column {
			at--
		}
		dims = slices.Delete(dims, at, at+1)
	}
	return b.Reshape(out, dims...)
}

// batched is one matmul of more rows where all batches share y, whose gradient is then one matmul too.
func (b *Builder) batched(a op.Attr, x, y Value, s, t shape.Shape) Value {
	if shared := t.Elements() == t[len(t)-2]*t[len(t)-1] && len(t) <= len(s); shared && (!a.TransA || len(s) == 2) {
		if len(t) > 2 {
			y = b.Reshape(y, t[len(t)-2:]...)
		}
		return b.matmul(a, x, y, 0)
	}
	return b.Apply(op.BatchMatMul, a, x, y)[0]
}

func (b *Builder) matmul(a op.Attr, x, w, bias Value) Value {
	if bias == 0 {
		return b.Apply(op.MatMul, a, x, w)[0]
	}
	a.Bias = true
	return b.Apply(op.MatMul, a, x, w, bias)[0]
}

// LinearPlus is x·Wᵀ + y, W [out in].
func (b *Builder) LinearPlus(x, w, y Value) Value {
	return b.Apply(op.MatMul, op.Attr{TransB: true, Plus: true}, x, b.matrix(w), y)[0]
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

// Add and Mul broadcast, as in PyTorch. Where y is as x, or as its last dimensions, ops of their own are faster. Real numbers of two types are f32
// together, as in PyTorch; so it is in all ops on elements, and in Concat.
func (b *Builder) Add(x, y Value) Value {
	x, y = b.promoted(x, y)
	if b.endsWith(x, y) {
		return b.Apply(op.Add, op.Attr{}, x, y)[0]
	}
	return b.Plus(x, y)
}

// Mul multiplies elementwise.
func (b *Builder) Mul(x, y Value) Value {
	x, y = b.promoted(x, y)
	if b.endsWith(x, y) {
		return b.Apply(op.Mul, op.Attr{}, x, y)[0]
	}
	return b.Times(x, y)
}

// promoted casts real numbers of two types to f32, which holds both.
func (b *Builder) promoted(x, y Value) (Value, Value) {
	s, t := b.TypeOf(x).DType, b.TypeOf(y).DType
	if s == t || !s.IsPlain() || !t.IsPlain() {
		return x, y // an op refuses what are no real numbers
	}
	return b.Cast(x, dtype.F32), b.Cast(y, dtype.F32)
}

// endsWith says that y has the last dimensions of x.
func (b *Builder) endsWith(x, y Value) bool {
	s, t := b.TypeOf(x).Shape, b.TypeOf(y).Shape
	return len(t) <= len(s) && t.Equal(s[len(s)-len(t):])
}

// Detach is x, through which no gradient passes. Values of a straight-through estimator are b.Add(x, b.Detach(b.Sub(q, x))).
func (b *Builder) Detach(x Value) Value { return b.Apply(op.Detach, op.Attr{}, x)[0] }

// Scale multiplies by a constant.
func (b *Builder) Scale(x Value, by float64) Value {
	return b.Apply(op.Scale, op.Attr{Scale: by}, x)[0]
}

// Unary applies a function to each element, one that has numbers with PyTorch's. Map takes other numbers.
func (b *Builder) Unary(f op.Func, x Value) Value {
	alpha, beta, ok := f.Defaults()
	if !ok {
		b.Fail("%s: by %v, which needs numbers; give them to Clamp, Power or Map", op.Unary, f)
		return 0
	}
	return b.Map(f, alpha, beta, x)
}

// Gated is f(gate)·up.
func (b *Builder) Gated(f op.Func, gate, up Value) Value {
	gate, up = b.promoted(gate, up)
	return b.Apply(op.Gated, op.Attr{Func: f}, gate, up)[0]
}

// Dropout drops elements while training and is nothing otherwise. A p of 1 makes zeros of all.
func (b *Builder) Dropout(x Value, p float64) Value {
	if !(p >= 0 && p <= 1) {
		b.Fail("%s: a probability of %v; it is from 0 to 1", op.Dropout, p)
		return 0
	}
	if p == 0 || !b.Training() {
		return x
	}
	if p == 1 {
		return b.Scale(x, 0)
	}
	return b.Apply(op.Dropout, op.Attr{Prob: p, Stream: b.Stream()}, x)[0]
}

// Cast changes the element type; integers may become real numbers.
func (b *Builder) Cast(x Value, to dtype.Type) Value {
	if b.TypeOf(x).DType == to {
		return x
	}
	if b.TypeOf(x).DType == dtype.I32 && to != dtype.F32 && to.Float() {
		x = b.Cast(x, dtype.F32)
	}
	return b.Apply(op.Cast, op.Attr{To: to}, x)[0]
}

// Dequantize makes plain numbers of a block-quantized weight.
func (b *Builder) Dequantize(w Value) Value {
	return b.Apply(op.Dequantize, op.Attr{To: b.DType}, w)[0]
}

// Split cuts the last dimension.
func (b *Builder) Split(x Value, sizes ...int64) []Value {
	return b.SplitAxis(x, -1, sizes...)
}

// Concat joins along the last dimension.
func (b *Builder) Concat(xs ...Value) Value { return b.ConcatAxis(-1, xs...) }

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

// AttentionMasks are the optional operands of attention: documents and padding [B S] i32, and a mask
// [T S], [H T S] or [B H T S] (1 for a dimension along which it is the same) that is added to the scores as PyTorch's
// attn_mask is. A mask that is learned, such as a bias by relative position, gets its gradient.
type AttentionMasks struct{ Segments, KeyMask, Mask Value }

// Attention of the given heads. Attr needs Heads and, as wanted, KVHeads (0: as many), Scale (0: 1/√width of a head, as in PyTorch),
// Causal, Window and Prob. Causal takes as many queries as keys: PyTorch's is_causal aligns the first of both and other libraries the last, so that a mask must say it.
func (b *Builder) Attention(a op.Attr, q, k, v Value, m AttentionMasks) Value {
	a = b.attentionDefaults(a, q)
	if b.Task == Generate {
		b.Fail("this attention has no cache, so the model cannot generate; causal models call nn.CausalAttention")
		return 0
	}
	if s, t := b.TypeOf(q).Shape, b.TypeOf(k).Shape; a.Causal && len(s) == 3 && len(t) == 3 && s[1] != t[1] {
		b.Fail("%s: causal with %d queries and %d keys, want as many of both; a Mask says which keys a query sees", op.Attention, s[1], t[1])
		return 0
	}
	if m.Mask != 0 && b.TypeOf(m.Mask).DType.Float() {
		m.Mask = b.ofPairs(b.Cast(m.Mask, dtype.F32), q, k)
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
	if !b.Training() {
		a.Prob = 0
	}
	if a.Prob > 0 {
		a.Stream = b.Stream()
	}
	return b.Apply(op.Attention, a, in...)[0]
}

// attentionDefaults fills in what a call of attention left out, and refuses numbers that no attention has.
func (b *Builder) attentionDefaults(a op.Attr, q Value) op.Attr {
	if a.KVHeads == 0 {
		a.KVHeads = a.Heads
	}
	width := b.TypeOf(q).Shape.Last()
	if b.err != nil || q == 0 {
		return a
	}
	if a.Heads < 1 || width%a.Heads != 0 {
		b.Fail("%s: %d heads do not divide the %d elements of %v; take a divisor", op.Attention, a.Heads, width, b.TypeOf(q))
		return a
	}
	if a.Scale == 0 {
		a.Scale = 1 / math.Sqrt(float64(width/a.Heads))
	}
	if math.IsNaN(a.Scale) || math.IsInf(a.Scale, 0) || !(a.Prob >= 0 && a.Prob < 1) {
		b.Fail("%s: a scale of %v and dropout of %v; want a finite number, and 0 to less than 1", op.Attention, a.Scale, a.Prob)
	}
	return a
}

// ofPairs repeats a mask that is the same for all queries or all keys.
func (b *Builder) ofPairs(mask, q, k Value) Value {
	s, queries, keys := b.TypeOf(mask).Shape, b.TypeOf(q).Shape, b.TypeOf(k).Shape
	if b.err != nil || len(queries) != 3 || len(keys) != 3 || len(s) < 1 || len(s) > 4 {
		return mask // which the op refuses
	}
	whole := slices.Concat(s[:max(len(s)-2, 0)], shape.Shape{queries[1], keys[1]})
	if together, err := shape.Broadcast(whole, s); err != nil || s.Equal(whole) || !together.Equal(whole) {
		return mask
	}
	return b.Expand(mask, whole...)
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
