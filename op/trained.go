package op

import (
	"fmt"
	"slices"

	"spillway/shape"
)

// Fused ops of training: each saves passes over activations that GPUs spend much of an iteration on. As with those
// of steps of few rows a program has them only where the device has kernels for them (graph.FuseTraining).

// JoinedAttention is Attention of q, k and v that lie side by side in one operand, as one matmul makes them.
//
//	operands  q, k and v [B T (H+2K)·D], then the optional ones of Attention
//	outputs   those of Attention
const JoinedAttention Kind = "joined_attention"

// JoinedAttentionGrad: operands q, k and v, o, lse, do, then the optional ones; output the gradients of q, k and v
// side by side.
const JoinedAttentionGrad Kind = "joined_attention_grad"

// LinearPlus is a matmul with a bias, added to something else.
//
//	operands  x [.. K], W [N K], bias [N], plus [.. N]
//	output    [.. N]
const LinearPlus Kind = "linear_plus"

// LayerNormGradPlus is LayerNormGrad whose dx is added to something else.
//
//	operands  those of LayerNormGrad, plus like x
//	outputs   those of LayerNormGrad
const LayerNormGradPlus Kind = "layer_norm_grad_plus"

// UnaryGradSums is UnaryGrad with the sums of its columns, which are the gradient of a bias.
//
//	operands  x, dy [.. N]
//	outputs   dx [.. N], sums [N]
const UnaryGradSums Kind = "unary_grad_sums"

func init() {
	Register(Op{Kind: JoinedAttention, Fused: true, Infer: inferJoinedAttention, Cost: func(c Call) Cost { return costAttention(c.Apart()) }, Reference: referenceJoinedAttention, Cases: (*CaseList).joinedAttention})
	Register(Op{Kind: JoinedAttentionGrad, Fused: true, Infer: inferJoinedAttentionGrad, Cost: func(c Call) Cost { return costAttentionGrad(c.Apart()) }, Reference: referenceJoinedAttentionGrad,
		Workspace: func(c Call) int64 { return c.In[2].Bytes() }})
	Register(Op{Kind: LinearPlus, Fused: true, Takes: 4, Infer: inferLinearPlus, Cost: costLinearPlus, Reference: referenceLinearPlus, Cases: (*CaseList).linearPlus,
		Sizes: func(c Call) [3]int64 { return [3]int64{c.In[0].Shape.Rows(), c.In[1].Shape[0], c.In[1].Shape[1]} }})
	Register(Op{Kind: LayerNormGradPlus, Fused: true, Takes: 4, Infer: inferLayerNormGradPlus, Cost: costNorm, Accumulates: normParams, Reference: referenceLayerNormGradPlus, Cases: (*CaseList).layerNormGradPlus})
	Register(Op{Kind: UnaryGradSums, Fused: true, Takes: 2, Infer: inferUnaryGradSums, Cost: costUnary, Accumulates: func(Attr) []int { return []int{1} }, Reference: referenceUnaryGradSums, Cases: (*CaseList).unaryGradSums})
}

// Apart is the call of Attention or AttentionGrad that a call with joined operands stands for.
func (c Call) Apart() Call {
	a := c.Attr
	out := Call{Kind: Attention, Attr: a}
	sizes := joinedSizes(a, c.In[0])
	for _, n := range sizes {
		out.In = append(out.In, Type{c.In[0].DType, c.In[0].Shape.WithLast(n)})
	}
	out.In, out.Out = append(out.In, c.In[1:]...), c.Out
	if c.Kind == JoinedAttentionGrad {
		out.Kind, out.Out = AttentionGrad, slices.Clone(out.In[:3])
	}
	return out
}

// joinedSizes are the elements that q, k and v have of a row; nil where they do not divide it.
func joinedSizes(a Attr, t Type) []int64 {
	heads := a.Heads + 2*a.KVHeads
	if len(t.Shape) != 3 || a.Heads < 1 || a.KVHeads < 1 || t.Shape[2]%heads != 0 {
		return nil
	}
	d := t.Shape[2] / heads
	return []int64{a.Heads * d, a.KVHeads * d, a.KVHeads * d}
}

func inferJoinedAttention(a Attr, in []Type) ([]Type, error) {
	if len(in) < 1 || joinedSizes(a, in[0]) == nil {
		return nil, fmt.Errorf("%v does not hold q, k and v of %d, %d and %d heads", in, a.Heads, a.KVHeads, a.KVHeads)
	}
	return inferAttention(a, Call{Kind: JoinedAttention, Attr: a, In: in}.Apart().In)
}

func inferJoinedAttentionGrad(a Attr, in []Type) ([]Type, error) {
	if len(in) < 4 || joinedSizes(a, in[0]) == nil {
		return nil, fmt.Errorf("%v does not hold q, k and v of %d, %d and %d heads, o, lse and do", in, a.Heads, a.KVHeads, a.KVHeads)
	}
	_, err := inferAttentionGrad(a, Call{Kind: JoinedAttentionGrad, Attr: a, In: in}.Apart().In)
	return in[:1:1], err
}

// columnsOf copies the columns of rows from one array to another, of which either is wider.
func columnsOf(from []float64, fromStep, fromAt int64, to []float64, toStep, toAt, width int64) {
	for r := range int64(len(to)) / toStep {
		copy(to[r*toStep+toAt:][:width], from[r*fromStep+fromAt:][:width])
	}
}

// parted are the operands of a joined call as those of the call that it stands for.
func parted(c Call, in []Array) (apart Call, arrays []Array) {
	apart = c.Apart()
	step, at := c.In[0].Shape[2], int64(0)
	for _, t := range apart.In[:3] {
		part := NewArray(t)
		columnsOf(in[0].F, step, at, part.F, t.Shape[2], 0, t.Shape[2])
		at += t.Shape[2]
		arrays = append(arrays, part)
	}
	return apart, append(arrays, in[1:]...)
}

func referenceJoinedAttention(c Call, in, out []Array, args Args) {
	apart, arrays := parted(c, in)
	referenceAttention(apart, arrays, out, args)
}

func referenceJoinedAttentionGrad(c Call, in, out []Array, args Args) {
	apart, arrays := parted(c, in)
	parts := []Array{NewArray(apart.Out[0]), NewArray(apart.Out[1]), NewArray(apart.Out[2])}
	referenceAttentionGrad(apart, arrays, parts, args)
	at := int64(0)
	for _, p := range parts {
		n := p.Type.Shape[2]
		columnsOf(p.F, n, 0, out[0].F, c.In[0].Shape[2], at, n)
		at += n
	}
}

func inferLinearPlus(_ Attr, in []Type) ([]Type, error) {
	out, err := inferMatMul(Attr{TransB: true, Bias: true}, in[:3])
	if err == nil && !in[3].Equal(out[0]) {
		err = fmt.Errorf("%v is added to %v, want the same type", in[3], out[0])
	}
	return out, err
}

func costLinearPlus(c Call) Cost {
	return Cost{Flops: 2 * float64(c.In[0].Shape.Rows()) * float64(c.In[1].Shape.Elements()), Matrix: true}
}

func referenceLinearPlus(c Call, in, out []Array, args Args) {
	referenceMatMul(Call{Kind: MatMul, Attr: Attr{TransB: true, Bias: true}, In: c.In[:3], Out: c.Out}, in[:3], out, args)
	for i := range out[0].F {
		out[0].F[i] += in[3].F[i]
	}
}

func inferLayerNormGradPlus(a Attr, in []Type) ([]Type, error) {
	out, err := inferLayerNormGrad(a, in[:3])
	if err == nil {
		err = same(in, 0, 3)
	}
	return out, err
}

func referenceLayerNormGradPlus(c Call, in, out []Array, args Args) {
	referenceLayerNormGrad(c, in[:3], out, args)
	for i := range out[0].F {
		out[0].F[i] += in[3].F[i]
	}
}

func inferUnaryGradSums(a Attr, in []Type) ([]Type, error) {
	out, err := inferUnaryGrad(a, in)
	return append(out, Type{in[0].DType, shape.Shape{in[0].Shape.Last()}}), err
}

func referenceUnaryGradSums(c Call, in, out []Array, args Args) {
	referenceUnaryGrad(c, in, out[:1], args)
	clear(out[1].F)
	for i, f := range out[0].F {
		out[1].F[i%len(out[1].F)] += f
	}
}

func (l *CaseList) joinedAttention() {
	for _, c := range []attentionCase{
		{name: "full", attr: Attr{Heads: 2, KVHeads: 2, Scale: 0.3}, b: 3, t: 37, d: 64},
		{name: "197", attr: Attr{Heads: 3, KVHeads: 3, Scale: 0.125}, b: 2, t: 197, d: 64, big: true},
		{name: "grouped", attr: Attr{Heads: 4, KVHeads: 2, Scale: 0.2, Causal: true}, b: 2, t: 130, d: 32, big: true},
	} {
		qkv := l.Sized(2, c.b, c.t, int(c.attr.Heads+2*c.attr.KVHeads)*c.d)
		l.Add(c.name, JoinedAttention, c.attr, qkv).Large = c.big
		o, lse := l.X(c.b, c.t, int(c.attr.Heads)*c.d), FilledF32(func(Array, func(int) float64) {}, c.b, int(c.attr.Heads), c.t)
		grad := l.Add(c.name, JoinedAttentionGrad, c.attr, qkv, o, lse, o)
		grad.Large = c.big
		call, args := grad.Call, grad.Args
		grad.derived = func(in []Array) {
			forward := Call{Kind: JoinedAttention, Attr: call.Attr, In: call.In[:1:1], Out: call.In[1:3]}
			referenceJoinedAttention(forward, in[:1:1], []Array{in[1], in[2]}, args)
		}
	}
}

func (l *CaseList) linearPlus() {
	for _, s := range [][3]int{{1, 8, 16}, {37, 24, 40}, {130, 72, 64}} {
		l.Add(fmt.Sprint(s), LinearPlus, Attr{}, l.X(s[0], s[2]), l.X(s[1], s[2]), l.X(s[1]), l.X(s[0], s[1]))
	}
}

func (l *CaseList) layerNormGradPlus() {
	for _, s := range [][2]int{{1, 8}, {37, 256}, {70, 504}, {9, 768}} {
		a, x, w := Attr{Eps: 1e-5, Bias: true}, l.X(s[0], s[1]), l.X(s[1])
		l.Add(fmt.Sprint(s), LayerNormGradPlus, a, x, w, x, x)
		a.Accumulate = true
		l.Add(fmt.Sprint(s, " accumulate"), LayerNormGradPlus, a, x, w, x, x)
	}
	l.Add("input only", LayerNormGradPlus, Attr{Eps: 1e-5, InputOnly: true}, l.X(9, 64), l.X(64), l.X(9, 64), l.X(9, 64))
}

func (l *CaseList) unaryGradSums() {
	for f := ReLU; f <= Sigmoid; f++ {
		l.Add(f.String(), UnaryGradSums, Attr{Func: f}, l.Sized(3, 37, 40), l.X(37, 40))
	}
	l.Add("accumulate", UnaryGradSums, Attr{Func: GELU, Accumulate: true}, l.Sized(3, 3, 70, 264), l.X(3, 70, 264))
}
