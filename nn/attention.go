package nn

import (
	"math"

	"spillway/graph"
	"spillway/op"
)

// CausalAttention is attention to the same and earlier positions of a document or, where the
// task is to generate, of a sequence in the cache. All causal models call it. Attr needs
// Heads, KVHeads, Scale and, as wanted, Window and Prob.
func CausalAttention(b *graph.Builder, a op.Attr, q, k, v graph.Value) graph.Value {
	if b.Task == graph.Generate {
		return b.CachedAttention(a, q, k, v)
	}
	a.Causal = true
	return b.Attention(a, q, k, v, graph.AttentionMasks{Segments: Segments(b)})
}

// SelfAttention is the attention of the Llama family: causal, rotary, heads
// sharing key-value heads.
type SelfAttention struct {
	Query     *Linear  `hf:"q_proj"`
	Key       *Linear  `hf:"k_proj"`
	Value     *Linear  `hf:"v_proj"`
	Output    *Linear  `hf:"o_proj"`
	QueryNorm *RMSNorm `hf:"q_norm,optional"` // of each head
	KeyNorm   *RMSNorm `hf:"k_norm,optional"`

	Heads, KVHeads, HeadDim int64
	Rope                    *Rope
	// Window: a position sees at most this many latest ones, itself included; 0 all.
	Window  int64
	Dropout float64 // of the attention weights
	Precision
}

// Forward maps x [B T D] to the same shape.
func (a *SelfAttention) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return a.In(b, x, func(x graph.Value) graph.Value {
		q := a.rotated(b, a.Query.Forward(b, x), a.QueryNorm, a.Heads)
		k := a.rotated(b, a.Key.Forward(b, x), a.KeyNorm, a.KVHeads)
		v := a.Value.Forward(b, x)
		o := CausalAttention(b, op.Attr{
			Heads: a.Heads, KVHeads: a.KVHeads, Scale: 1 / math.Sqrt(float64(a.HeadDim)), Window: a.Window, Prob: a.Dropout,
		}, q, k, v)
		return a.Output.Forward(b, o)
	})
}

func (a *SelfAttention) rotated(b *graph.Builder, x graph.Value, norm *RMSNorm, heads int64) graph.Value {
	if norm != nil {
		x = norm.Forward(b, x)
	}
	return a.Rope.Forward(b, x, heads)
}
