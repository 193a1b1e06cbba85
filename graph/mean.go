package graph

import (
	"slices"

	"spillway/op"
)

// Batch tensors of what a mean over the whole batch is divided by: the targets or numbers that count, and the samples. Each micro-batch is given the same, so that
// the sum over micro-batches of what is multiplied by one of them is the mean.
const (
	ScalePart       = "scale"
	SampleScalePart = "sample_scale"
)

// AddUp says of each output whether its sum over micro-batches is what the whole batch would give: whether it is a sum of terms of which each is multiplied by
// the scale of the batch, once. carried says it of the values of the block before. A term without, such as a penalty on weights or a mean of one's own, would count once for each
// micro-batch.
func (p *Program) AddUp(carried []bool) []bool {
	adds := make([]bool, len(p.Types)) // by value
	for _, in := range p.Inputs {
		adds[in.Value] = in.Role == Batch && (in.Name == ScalePart || in.Name == SampleScalePart) || in.Role == Carry && in.Index < len(carried) && carried[in.Index]
	}
	for _, n := range p.Nodes {
		does := n.addsUp(func(i int) bool { return adds[n.In[i]] })
		for _, v := range n.Out {
			adds[v] = does
		}
	}
	out := make([]bool, len(p.Outputs))
	for i, port := range p.Outputs {
		out[i] = adds[port.Value]
	}
	return out
}

// addsUp is AddUp of what a node makes, where in says it of its operands.
func (n Node) addsUp(in func(i int) bool) bool {
	all := func() bool {
		for i := range n.In {
			if !in(i) {
				return false
			}
		}
		return true
	}
	switch n.Kind {
	case op.Scale, op.Reshape, op.Cast, op.Permute, op.Expand, op.Slice, op.Pad, op.Split, op.Detach, op.Add, op.Concat:
		return all()
	case op.Reduce:
		return in(0) && slices.Contains([]op.Reduction{op.ReduceSum, op.ReduceMean}, n.Attr.Reduction)
	case op.Mul:
		return in(0) != in(1)
	case op.CrossEntropy, op.LinearCrossEntropy, op.MeanSquare:
		return in(len(n.In) - 1)
	case op.Binary:
		switch n.Attr.Func2 {
		case op.Plus, op.Minus:
			return all()
		case op.Times:
			return in(0) != in(1)
		case op.Divide:
			return in(0) && !in(1)
		case op.If, op.Unless: // the condition comes first
			return in(1) && !in(0)
		}
	}
	return false
}
