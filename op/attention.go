package op

import (
	"fmt"

	"spillway/dtype"
	"spillway/shape"
)

func init() {
	Register(Op{Kind: Attention, Infer: inferAttention, Cost: costAttention, Reference: referenceAttention, Sizes: attentionSizes, Cases: (*CaseList).attention})
	Register(Op{Kind: AttentionGrad, Infer: inferAttentionGrad, Cost: costAttentionGrad, Reference: referenceAttentionGrad, Sizes: attentionSizes,
		Workspace: func(c Call) int64 { return c.In[4].Bytes() }}) // of each row, the dot product of o and do
	Register(Op{Kind: AttentionMaskGrad, Infer: inferAttentionMaskGrad, Cost: costAttentionMaskGrad, Reference: referenceAttentionMaskGrad, Sizes: attentionSizes,
		Workspace: func(c Call) int64 { return c.In[4].Bytes() }})
}

// attentionSizes are key positions, heads of all samples, and the width of a head.
func attentionSizes(c Call) [3]int64 {
	return [3]int64{c.In[1].Shape[1], c.In[0].Shape[0] * c.Attr.Heads, c.In[0].Shape[2] / c.Attr.Heads}
}

// Attention: o = softmax(scale·q·kᵀ + mask)·v per head, never holding the scores.
// Heads share key-value heads in groups of Heads/KVHeads. Query i of T sees key j
// of S when all of these hold:
//
//	Causal    j ≤ i + S - T
//	Window    j > i + S - T - Window
//	Segments  segments[b,i+S-T] = segments[b,j]: packed documents do not see each other
//	KeyMask   key_mask[b,j] ≠ 0
//
// and mask[b,h,i,j] (f32, -inf allowed) is added to its score; a dimension of 1, or one that
// is left out, is the same for all samples or heads. A query that sees no key gives zeros. Dropout of Prob is applied to the weights: dropped is where
// number j of line ((Row+b)·H + h)·T + i of the stream is below LineLimit(Prob).
//
//	operands  q [B T H·D], k [B S K·D], v [B S K·D], segments [B S] i32, key_mask [B S] i32,
//	          mask [T S], [H T S] or [B H T S] f32
//	outputs   o [B T H·D], lse [B H T] f32: the logarithm of each row's sum of exponentials,
//	          -inf for a query that sees no key
const Attention Kind = "attention"

func inferAttention(a Attr, in []Type) ([]Type, error) {
	if err := attentionOperands(a, in, 3); err != nil {
		return nil, err
	}
	q := in[0].Shape
	return []Type{in[0], {dtype.F32, shape.Shape{q[0], a.Heads, q[1]}}}, nil
}

// AttentionGrad: operands q, k, v, o, lse, do, then the optional ones of
// Attention; outputs dq, dk, dv. The sum into each element has one fixed order.
const AttentionGrad Kind = "attention_grad"

func inferAttentionGrad(a Attr, in []Type) ([]Type, error) {
	if err := attentionOperands(a, in, 6); err != nil {
		return nil, err
	}
	q := in[0].Shape
	lse := Type{dtype.F32, shape.Shape{q[0], a.Heads, q[1]}}
	if !in[4].Equal(lse) {
		return nil, fmt.Errorf("operand 4 is %v, want %v", in[4], lse)
	}
	return []Type{in[0], in[1], in[2]}, check(same(in, 0, 3), same(in, 0, 5))
}

// AttentionMaskGrad: operands those of AttentionGrad, with a mask as the last; output dmask, like
// the mask: of each pair the gradient of its score, summed over the samples and heads that share
// it, in their order. No tensor of all scores is held.
const AttentionMaskGrad Kind = "attention_mask_grad"

func inferAttentionMaskGrad(a Attr, in []Type) ([]Type, error) {
	if !a.Mask {
		return nil, fmt.Errorf("there is no mask")
	}
	if _, err := inferAttentionGrad(a, in); err != nil {
		return nil, err
	}
	return in[len(in)-1:], nil
}

// attentionOperands checks q, k, v and the optional operands, which start at
// position fixed.
func attentionOperands(a Attr, in []Type, fixed int) error {
	if err := arity(in, fixed, a.Segments, a.KeyMask, a.Mask); err != nil {
		return err
	}
	if err := check(float(in, 0, 1, 2), same(in, 1, 2), probability(a.Prob)); err != nil {
		return err
	}
	if in[0].DType != in[1].DType {
		return fmt.Errorf("q %v and k %v: element types differ; cast one of them", in[0], in[1])
	}
	q, k := in[0].Shape, in[1].Shape
	switch {
	case len(q) != 3 || len(k) != 3 || q[0] != k[0]:
		return fmt.Errorf("q %v and k %v, want [B T H·D] and [B S K·D]", in[0], in[1])
	case a.Heads < 1 || a.KVHeads < 1 || a.Heads%a.KVHeads != 0 || q[2]%a.Heads != 0 || k[2]%a.KVHeads != 0 || q[2]/a.Heads != k[2]/a.KVHeads:
		return fmt.Errorf("q %v in %d heads and k %v in %d heads do not match", in[0], a.Heads, in[1], a.KVHeads)
	case a.Window < 0 || a.Window > 0 && !a.Causal:
		return fmt.Errorf("window %d needs causal attention", a.Window)
	case (a.Causal || a.Segments) && q[1] > k[1]:
		return fmt.Errorf("causal or packed with more queries (%d) than keys (%d)", q[1], k[1])
	}
	return attentionMasks(a, in[fixed:], q[0], q[1], k[1])
}

func attentionMasks(a Attr, in []Type, b, t, s int64) error {
	keys := Type{dtype.I32, shape.Shape{b, s}}
	for _, m := range []struct {
		has  bool
		name string
	}{{a.Segments, "segments"}, {a.KeyMask, "key_mask"}} {
		if !m.has {
			continue
		}
		if !in[0].Equal(keys) {
			return fmt.Errorf("%s is %v, want %v", m.name, in[0], keys)
		}
		in = in[1:]
	}
	if a.Mask && !isMask(in[0], b, a.Heads, t, s) {
		return fmt.Errorf("mask is %v, want f32[%d %d], or with 1 or %d heads before it, and 1 or %d samples before those", in[0], t, s, a.Heads, b)
	}
	return nil
}

// isMask says that a type is [T S], [H T S] or [B H T S], with 1 for what is the same.
func isMask(m Type, b, h, t, s int64) bool {
	n := len(m.Shape)
	if m.DType != dtype.F32 || n < 2 || n > 4 || m.Shape[n-2] != t || m.Shape[n-1] != s {
		return false
	}
	for i, want := range []int64{h, b}[:n-2] {
		if d := m.Shape[n-3-i]; d != 1 && d != want {
			return false
		}
	}
	return true
}

// MaskSteps are between the masks of neighbouring samples and heads of a mask, in elements: 0
// where they share one.
func (t Type) MaskSteps() (sample, head int64) {
	n := len(t.Shape)
	size := t.Shape[n-2] * t.Shape[n-1]
	if n > 2 && t.Shape[n-3] > 1 {
		head = size
	}
	if n > 3 && t.Shape[0] > 1 {
		sample = size * t.Shape[1]
	}
	return sample, head
}

// documentTile is about how many keys are computed for a query in addition to those of its
// document: kernels skip tiles, not single pairs.
const documentTile = 80

// attentionPairs is how many query-key pairs are computed, causal and window masks and
// documents counted, others not.
func attentionPairs(c Call) float64 {
	t, s := float64(c.In[0].Shape[1]), float64(c.In[1].Shape[1])
	pairs := pairsOfRow(c.Attr, t, s)
	if d := float64(c.Attr.Document); c.Attr.Segments && d > 0 && d < t && t == s {
		perQuery := func(n float64) float64 { return pairsOfRow(c.Attr, n, n)/n + documentTile }
		pairs *= perQuery(d) / perQuery(t)
	}
	return pairs * float64(c.In[0].Shape[0])
}

// pairsOfRow is how many pairs t queries and s keys of one document make.
func pairsOfRow(a Attr, t, s float64) float64 {
	if !a.Causal {
		return t * s
	}
	// The i-th query sees s-t+i keys, but never more than the window.
	w := s
	if a.Window > 0 {
		w = min(s, float64(a.Window))
	}
	growing := min(max(w-(s-t), 0), t)
	return growing*(s-t) + growing*(growing+1)/2 + (t-growing)*w
}

func costAttention(c Call) Cost {
	return Cost{Flops: 4 * attentionPairs(c) * float64(c.In[0].Shape[2]), Matrix: true}
}

func costAttentionGrad(c Call) Cost {
	return Cost{Flops: 10 * attentionPairs(c) * float64(c.In[0].Shape[2]), Matrix: true}
}

// costAttentionMaskGrad: scores and gradients of weights are computed once more.
func costAttentionMaskGrad(c Call) Cost {
	return Cost{Flops: 4 * attentionPairs(c) * float64(c.In[0].Shape[2]), Matrix: true}
}
