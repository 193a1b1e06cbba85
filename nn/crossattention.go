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

// Forward maps x [B T D] and what it looks at [B S other] to [B T D]. mask [T S], or one that MaskedAttention takes, is added to the
// scores, keys [B S] i32 is 0 where nothing may look; both may be no values. Allowed makes a mask of ones and zeros.
func (a *CrossAttention) Forward(b *graph.Builder, x, other, mask, keys graph.Value) graph.Value {
	width := b.TypeOf(x).Shape.Last()
	attr := op.Attr{Heads: a.Heads, KVHeads: a.Heads, Scale: 1 / math.Sqrt(float64(width)/float64(max(a.Heads, 1))), Prob: a.Dropout}
	o := MaskedAttention(b, attr, a.Query.Forward(b, x), a.Key.Forward(b, other), a.Value.Forward(b, other), graph.AttentionMasks{Mask: mask, KeyMask: keys})
	return a.Output.Forward(b, o)
}

// MaskedAttention is Builder.Attention whose mask may also be [B H T S], with 1 for samples or heads that have the same, as PyTorch's
// scaled_dot_product_attention takes it. Samples and heads with masks of their own are computed one after the other. Masks have no gradient.
func MaskedAttention(b *graph.Builder, attr op.Attr, q, k, v graph.Value, m graph.AttentionMasks) graph.Value {
	if m.Mask == 0 || b.Err() != nil || len(b.TypeOf(m.Mask).Shape) == 2 {
		return b.Attention(attr, q, k, v, m)
	}
	mask, x := b.TypeOf(m.Mask).Shape, b.TypeOf(q).Shape
	if len(mask) != 4 || len(x) != 3 || mask[0] != 1 && mask[0] != x[0] || mask[1] != 1 && mask[1] != attr.Heads {
		b.Fail("a mask %v for %d heads of %v; want [T S], or [B H T S] with 1 for what is the same", b.TypeOf(m.Mask), attr.Heads, b.TypeOf(q))
		return 0
	}
	if attr.Heads < 1 || attr.KVHeads < 1 || attr.Heads%attr.KVHeads != 0 {
		b.Fail("%d heads do not share %d of keys and values evenly", attr.Heads, attr.KVHeads)
		return 0
	}
	samples := make([]graph.Value, mask[0])
	for i := range samples {
		of := func(x graph.Value) graph.Value {
			if x == 0 || len(samples) == 1 {
				return x
			}
			return b.Slice(x, 0, int64(i), int64(i)+1, 1)
		}
		heads := make([]graph.Value, mask[1])
		for h := range heads {
			one, masks := attr, graph.AttentionMasks{Segments: of(m.Segments), KeyMask: of(m.KeyMask)}
			query, key, value := of(q), of(k), of(v)
			if len(heads) > 1 {
				one.Heads, one.KVHeads = 1, 1
				query = head(b, query, int64(h), attr.Heads)
				key, value = head(b, key, int64(h)*attr.KVHeads/attr.Heads, attr.KVHeads), head(b, value, int64(h)*attr.KVHeads/attr.Heads, attr.KVHeads)
			}
			own := b.Slice(b.Slice(m.Mask, 0, int64(i), int64(i)+1, 1), 1, int64(h), int64(h)+1, 1)
			masks.Mask = b.Reshape(own, mask[2], mask[3])
			heads[h] = b.Attention(one, query, key, value, masks)
		}
		if samples[i] = heads[0]; len(heads) > 1 {
			samples[i] = b.Concat(heads...)
		}
	}
	if len(samples) == 1 {
		return samples[0]
	}
	return b.ConcatAxis(0, samples...)
}

// head is head i of n of x [B T n·D].
func head(b *graph.Builder, x graph.Value, i, n int64) graph.Value {
	width := b.TypeOf(x).Shape.Last() / n
	return b.Slice(x, -1, i*width, (i+1)*width, 1)
}

// Allowed makes a mask that is added to scores of one that is 1 where a query may look and 0 elsewhere.
func Allowed(b *graph.Builder, allowed graph.Value) graph.Value {
	hidden := b.Floats("hidden", []float32{float32(math.Inf(-1))})
	return b.Binary(op.Unless, b.Cast(allowed, dtype.F32), hidden)
}

// EmbeddingBag is the sum or mean of rows of a table, PyTorch's layer of the same name with bags of one size.
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
	return b.Reduce(e.Mode, e.Embedding.Forward(b, ids), false, -2)
}

// RopeForm is how published models pair the elements of a head that are rotated together.
type RopeForm string

// The forms.
const (
	HalfRope        RopeForm = "half"        // element i with i + half: Llama, GPT-NeoX
	InterleavedRope RopeForm = "interleaved" // neighbours: GPT-J, the original
)

// RotatePartly rotates the first dims elements of each head of x [B T H·D] in a form, and leaves the others.
func RotatePartly(b *graph.Builder, r *Rope, form RopeForm, x graph.Value, heads, dims int64) graph.Value {
	s := b.TypeOf(x).Shape
	if b.Err() != nil {
		return 0
	}
	if len(s) != 3 || heads < 1 || s[2]%heads != 0 || dims < 2 || dims%2 != 0 || dims > s[2]/heads || int64(len(r.Freq)) != dims/2 {
		b.Fail("rotating %d elements of each of %d heads of %v by %d frequencies; want an even number of a head's and half as many frequencies", dims, heads, b.TypeOf(x), len(r.Freq))
		return 0
	}
	width := s[2] / heads
	whole := b.Reshape(x, s[0], s[1], heads, width)
	parts := []graph.Value{whole}
	if dims < width {
		parts = b.Split(whole, dims, width-dims)
	}
	turned := parts[0]
	if form == InterleavedRope { // neighbours to halves, and back
		turned = b.Permute(b.Reshape(turned, s[0], s[1], heads, dims/2, 2), 0, 1, 2, 4, 3)
	}
	turned = r.Forward(b, b.Reshape(turned, s[0], s[1], heads*dims), heads)
	if form == InterleavedRope {
		turned = b.Permute(b.Reshape(turned, s[0], s[1], heads, 2, dims/2), 0, 1, 2, 4, 3)
	}
	if turned = b.Reshape(turned, s[0], s[1], heads, dims); dims < width {
		turned = b.Concat(turned, parts[1])
	}
	return b.Reshape(turned, s[0], s[1], s[2])
}
