package nn

import (
	"math"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
)

// CrossAttention is attention of queries to something else: PyTorch's MultiheadAttention whose keys and
// values may have a width of their own (kdim and vdim).
type CrossAttention struct {
	Query  *Linear `hf:"q_proj"`
	Key    *Linear `hf:"k_proj"`
	Value  *Linear `hf:"v_proj"`
	Output *Linear `hf:"out_proj"`
	Heads  int64
	// Dropout of the attention weights.
	Dropout float64
}

// NewCrossAttention has queries of a width and keys and values of another.
func NewCrossAttention(width, other, heads int64) *CrossAttention {
	return &CrossAttention{NewLinear(width, width), NewLinear(other, width), NewLinear(other, width), NewLinear(width, width), heads, 0}
}

// Forward maps x [B T D], which looks at other [B S W], to [B T D]. Mask [T S], [H T S] or [B H T S] is added to the
// scores and gets a gradient; Allowed makes one of ones and zeros. Keys [B S] i32 is 0 where nothing may look. The
// zero Value stands for none of either.
func (a *CrossAttention) Forward(b *graph.Builder, x, other, mask, keys graph.Value) graph.Value {
	width := b.TypeOf(x).Shape.Last()
	attr := op.Attr{Heads: a.Heads, KVHeads: a.Heads, Scale: 1 / math.Sqrt(float64(width)/float64(max(a.Heads, 1))), Prob: a.Dropout}
	o := b.Attention(attr, a.Query.Forward(b, x), a.Key.Forward(b, other), a.Value.Forward(b, other), graph.AttentionMasks{Mask: mask, KeyMask: keys})
	return a.Output.Forward(b, o)
}

// Allowed makes a mask that is added to scores of one that is 1 where a query may look and 0 elsewhere.
func Allowed(b *graph.Builder, allowed graph.Value) graph.Value {
	hidden := b.Floats("hidden", []float32{float32(math.Inf(-1))})
	return b.Binary(op.Unless, b.Cast(allowed, dtype.F32), hidden)
}

// EmbeddingBag is the sum or mean of rows of a table, PyTorch's layer of the same name with bags of one size. Smaller bags are filled up
// with the id of WithPadding, which counts for nothing.
type EmbeddingBag struct {
	Embedding `hf:""`
	Mode      op.Reduction // ReduceSum, ReduceMean (PyTorch's default) or ReduceMax
}

// NewEmbeddingBag takes means, as PyTorch's.
func NewEmbeddingBag(rows, width int64) *EmbeddingBag {
	return &EmbeddingBag{*NewEmbedding(rows, width), op.ReduceMean}
}

// Forward maps ids [B N] i32 to [B width].
func (e *EmbeddingBag) Forward(b *graph.Builder, ids graph.Value) graph.Value {
	if t := b.TypeOf(ids); len(t.Shape) != 2 && b.Err() == nil {
		b.Fail("embedding_bag: ids are %v with %d dimensions, want [B N]", t, len(t.Shape))
		return 0
	}
	if e.Mode != op.ReduceSum && e.Mode != op.ReduceMean && e.Mode != op.ReduceMax {
		b.Fail("embedding_bag: bags reduced by %v, want %v, %v or %v", e.Mode, op.ReduceSum, op.ReduceMean, op.ReduceMax)
		return 0
	}
	rows := e.Embedding.Forward(b, ids)
	if e.padding == nil || b.Err() != nil {
		return b.Reduce(e.Mode, rows, false, -2)
	}
	pads := e.pads(b, ids, b.TypeOf(rows).DType)
	count := b.Sub(b.Number(rows, float64(b.TypeOf(ids).Shape.Last())), b.Sum(pads, -2))
	switch e.Mode {
	case op.ReduceSum:
		return b.Sum(b.MaskedFill(rows, pads, 0), -2)
	case op.ReduceMean:
		return b.Div(b.Sum(b.MaskedFill(rows, pads, 0), -2), b.Maximum(count, b.Number(rows, 1)))
	}
	most := b.Max(b.MaskedFill(rows, pads, math.Inf(-1)), -2)
	return b.Binary(op.If, count, most) // that of an empty bag is 0
}
