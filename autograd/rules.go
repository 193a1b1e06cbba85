package autograd

import (
	"fmt"
	"slices"

	"spillway/graph"
	"spillway/op"
)

// Rule writes the gradient of an op. From the gradients dy of the outputs of node n (0
// for outputs that reach no loss; at least one is not 0) it gives the gradient of each
// operand, 0 where there is none or r.Needs says that none is wanted.
type Rule func(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value

// Register adds the rule of an op that a program brings. Call it from an init function;
// it panics where the kind has a rule already. The rules of this module's ops are the
// table below.
func Register(kind op.Kind, rule Rule) {
	if _, taken := rules[kind]; taken {
		panic(fmt.Sprintf("autograd: a second rule for %s", kind))
	}
	rules[kind] = rule
}

// rules are the gradients of all ops that model code uses. An op without one stops
// gradients with an error when something trainable lies before it. A nil rule says that
// the result counts as a constant, by definition.
var rules = map[op.Kind]Rule{
	op.MatMul:             gradMatMul,
	op.BatchMatMul:        gradBatchMatMul,
	op.QuantizedMatmul:    gradQuantizedMatmul,
	op.Embedding:          gradEmbedding,
	op.Copy:               func(_ *Reverse, _ graph.Node, dy []graph.Value) []graph.Value { return dy },
	op.Add:                gradAdd,
	op.Mul:                gradMul,
	op.Scale:              gradSame,
	op.Dropout:            gradSame,
	op.Unary:              gradBy(op.UnaryGrad),
	op.Gated:              gradBy(op.GatedGrad),
	op.Cast:               gradCast,
	op.Split:              gradSplit,
	op.Concat:             gradConcat,
	op.RMSNorm:            gradNorm(op.RMSNormGrad),
	op.LayerNorm:          gradNorm(op.LayerNormGrad),
	op.Rope:               gradRope,
	op.Attention:          gradAttention,
	op.JoinedAttention:    gradJoinedAttention,
	op.LinearPlus:         gradLinearPlus,
	op.LinearCrossEntropy: gradLinearCrossEntropy,
	op.CrossEntropy:       gradBy(op.CrossEntropyGrad),
	op.MeanSquare:         gradBy(op.MeanSquareGrad),
	op.InverseNorm:        nil,
	op.Detach:             nil,
	op.Compare:            nil,
	op.Counted:            nil,
	op.ArgMax:             nil,
	op.ArgSort:            nil,
	op.Binary:             gradBinary,
	op.Reduce:             gradReduce,
	op.Softmax:            gradSoftmax,
	op.CumSum:             gradCumSum,
	op.Follow:             gradFollow,
	op.Reshape:            gradReshape,
	op.Permute:            gradPermute,
	op.Expand:             gradExpand,
	op.Slice:              gradSlice,
	op.Pad:                gradPad,
	op.Gather:             gradGather,
	op.GatherGrad:         gradScatterAdd,
	op.ScatterReduce:      gradScatterReduce,
	op.Conv:               gradConv,
	op.ConvInput:          gradConvInput,
	op.Pool:               gradPool,
	op.GroupNorm:          gradGroupNorm,
	op.Resample:           gradResample,

	// Gradients of gradients, see second.go.
	op.SumRows:       gradSumRows,
	op.UnaryGrad:     gradUnaryGrad,
	op.BinaryGrad:    gradBinaryGrad,
	op.SoftmaxGrad:   gradSoftmaxGrad,
	op.ReduceGrad:    gradReduceGrad,
	op.EmbeddingGrad: gradEmbeddingGrad,
	op.ConvWeight:    gradConvWeight,
	op.PoolGrad:      gradPoolGrad,
	op.ResampleGrad:  gradResampleGrad,
}

// productGrads: for C = A·B, dA = dC·Bᵀ and dB = Aᵀ·dC. For the transposed forms factors and
// flags are swapped so that the result is stored as the operand is.
func productGrads(r *Reverse, kind op.Kind, n graph.Node, dc graph.Value) []graph.Value {
	a, b := n.In[0], n.In[1]
	ta, tb := n.Attr.TransA, n.Attr.TransB
	dx := make([]graph.Value, len(n.In))
	if r.Needs(a) {
		if ta {
			dx[0] = r.EmitOne(kind, op.Attr{TransA: tb, TransB: true}, b, dc)
		} else {
			dx[0] = r.EmitOne(kind, op.Attr{TransB: !tb}, dc, b)
		}
	}
	if r.Needs(b) {
		if tb {
			dx[1] = r.EmitOne(kind, op.Attr{TransA: true, TransB: ta}, dc, a)
		} else {
			dx[1] = r.EmitOne(kind, op.Attr{TransA: !ta}, a, dc)
		}
	}
	return dx
}

func gradMatMul(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dc, dx := dy[0], productGrads(r, op.MatMul, n, dy[0])
	if n.Attr.Bias && r.Needs(n.In[2]) {
		dx[2] = r.EmitOne(op.SumRows, op.Attr{InnerDims: 1}, dc)
	}
	if n.Attr.Plus {
		dx[2] = dc
	}
	return dx
}

// gradBatchMatMul is gradMatMul matrix by matrix; an operand that was repeated over batches has the sum
// over them.
func gradBatchMatMul(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := productGrads(r, op.BatchMatMul, n, dy[0])
	for i, v := range n.In {
		if dx[i] != 0 {
			dx[i] = r.unrepeat(dx[i], r.TypeOf(v).Shape)
		}
	}
	return dx
}

// gradQuantizedMatmul decodes the weight for dx = dy·W.
func gradQuantizedMatmul(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := make([]graph.Value, len(n.In))
	if r.Needs(n.In[0]) {
		w := r.EmitOne(op.Dequantize, op.Attr{To: r.TypeOf(dy[0]).DType}, n.In[1])
		dx[0] = r.EmitOne(op.MatMul, op.Attr{}, dy[0], w)
	}
	if n.Attr.Bias && r.Needs(n.In[2]) {
		dx[2] = r.EmitOne(op.SumRows, op.Attr{InnerDims: 1}, dy[0])
	}
	return dx
}

func gradEmbedding(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	rows := r.TypeOf(n.In[1]).Shape.Rows()
	return []graph.Value{0, r.EmitOne(op.EmbeddingGrad, op.Attr{Rows: rows}, n.In[0], dy[0])}
}

// gradSame: linear ops that are their own gradient. Dropout makes the same mask
// again from the same stream.
func gradSame(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	return []graph.Value{r.EmitOne(n.Kind, n.Attr, dy[0])}
}

func gradAdd(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := []graph.Value{dy[0], 0}
	if r.Needs(n.In[1]) {
		dx[1] = r.unbroadcast(dy[0], n.In[1])
	}
	return dx
}

func gradMul(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := make([]graph.Value, 2)
	if r.Needs(n.In[0]) {
		dx[0] = r.EmitOne(op.Mul, op.Attr{}, dy[0], n.In[1])
	}
	if r.Needs(n.In[1]) {
		dx[1] = r.unbroadcast(r.EmitOne(op.Mul, op.Attr{}, dy[0], n.In[0]), n.In[1])
	}
	return dx
}

// unbroadcast sums a gradient over the outer dimensions that v was repeated over.
func (r *Reverse) unbroadcast(g, v graph.Value) graph.Value {
	rank := len(r.TypeOf(v).Shape)
	if rank == len(r.TypeOf(g).Shape) {
		return g
	}
	return r.EmitOne(op.SumRows, op.Attr{InnerDims: int64(rank)}, g)
}

// gradBy: an op of its own takes the operands and dy, and gives the gradients of the first of
// them; the others have none.
func gradBy(kind op.Kind) Rule {
	return func(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
		dx := make([]graph.Value, len(n.In))
		copy(dx, r.Emit(kind, n.Attr, append(slices.Clone(n.In), dy[0])...))
		return dx
	}
}

func gradCast(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	return r.Emit(op.Cast, op.Attr{To: r.TypeOf(n.In[0]).DType}, dy[0])
}

// gradSplit joins the gradients of the parts; a part that reaches nothing has a
// gradient of zeros.
func gradSplit(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	parts := make([]graph.Value, len(dy))
	for i, g := range dy {
		parts[i] = g
		if g == 0 {
			parts[i] = r.EmitOne(op.Scale, op.Attr{Scale: 0}, n.Out[i])
		}
	}
	return r.Emit(op.Concat, op.Attr{Axis: n.Attr.Axis}, parts...)
}

func gradConcat(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	sizes := make([]int64, len(n.In))
	for i, v := range n.In {
		_, sizes[i], _ = r.TypeOf(v).Shape.Around(n.Attr.Axis, 1)
	}
	return r.Emit(op.Split, op.Attr{Axis: n.Attr.Axis, Sizes: sizes}, dy[0])
}

// gradNorm: one op gives the gradients of x, the weight and the bias.
func gradNorm(kind op.Kind) Rule {
	return func(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
		a := n.Attr
		a.InputOnly = true
		for _, param := range n.In[1:] {
			a.InputOnly = a.InputOnly && !r.Needs(param)
		}
		dx := make([]graph.Value, len(n.In))
		copy(dx, r.Emit(kind, a, n.In[0], n.In[1], dy[0]))
		return dx
	}
}

// gradRope rotates back: the transpose of a rotation.
func gradRope(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	a := n.Attr
	a.Inverse = !a.Inverse
	return []graph.Value{r.EmitOne(op.Rope, a, dy[0], n.In[1], n.In[2]), 0, 0}
}

// gradAttention reads the forward outputs again: o and the logarithms of the row
// sums, from which the attention weights are recomputed. A mask that is learned has a gradient
// by an op of its own, so that others cost nothing more.
func gradAttention(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := make([]graph.Value, len(n.In))
	if dy[0] == 0 || dy[1] != 0 {
		return dx // gradients of the row sums do not exist
	}
	in := append([]graph.Value{n.In[0], n.In[1], n.In[2], n.Out[0], n.Out[1], dy[0]}, n.In[3:]...)
	if r.Needs(n.In[0]) || r.Needs(n.In[1]) || r.Needs(n.In[2]) {
		copy(dx, r.Emit(op.AttentionGrad, n.Attr, in...))
	}
	if last := len(n.In) - 1; n.Attr.Mask && r.Needs(n.In[last]) {
		dx[last] = r.EmitOne(op.AttentionMaskGrad, n.Attr, in...)
	}
	return dx
}

// gradJoinedAttention is the same with q, k and v in one.
func gradJoinedAttention(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := make([]graph.Value, len(n.In))
	if dy[0] == 0 || dy[1] != 0 {
		return dx
	}
	in := append([]graph.Value{n.In[0], n.Out[0], n.Out[1], dy[0]}, n.In[1:]...)
	dx[0] = r.EmitOne(op.JoinedAttentionGrad, n.Attr, in...)
	return dx
}

// gradLinearPlus is that of the matmul; what is added to has the gradient as it is.
func gradLinearPlus(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := gradMatMul(r, graph.Node{Kind: op.MatMul, Attr: op.Attr{TransB: true, Bias: true}, In: n.In[:3], At: n.At}, dy)
	return append(dx, dy[0])
}

// gradLinearCrossEntropy takes the loss from the gradient op too, which computes
// it in the same pass.
func gradLinearCrossEntropy(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	a := op.Attr{InputOnly: !r.Needs(n.In[1])}
	out := r.Emit(op.LinearCrossEntropyGrad, a, n.In[0], n.In[1], n.In[2], n.In[3], dy[0])
	if r.joint.Loss == n.Out[0] {
		r.joint.Loss = out[0]
	}
	dx := make([]graph.Value, len(n.In))
	copy(dx, out[1:])
	return dx
}
