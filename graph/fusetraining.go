package graph

import (
	"slices"

	"spillway/op"
)

// FuseTraining puts fused ops into a program that is to be differentiated, wherever has says that the device has
// kernels for them and for their gradients. There are two: attention that reads q, k and v where one matmul has put
// them, and matmuls that add what their result is added to. It gives a new program, or the same one where nothing is
// to be done.
func FuseTraining(p *Program, has func(op.Call) bool) *Program {
	f := newFuser(p, has)
	fused := false
	for i := range f.Nodes {
		switch f.Nodes[i].Kind {
		case op.Attention:
			fused = f.joined(i) || fused
		case op.Add:
			fused = f.linearPlus(i) || fused
		}
	}
	if !fused {
		return p
	}
	return f.compact()
}

// joined turns attention of the parts of one value into JoinedAttention, which has no gradient of a mask.
func (f *fuser) joined(i int) bool {
	n := f.Nodes[i]
	at, ok := f.maker[n.In[0]]
	if !ok || n.Attr.Mask || f.Nodes[at].Kind != op.Split || f.Nodes[at].Attr.Axis != 0 || !slices.Equal(f.Nodes[at].Out, n.In[:3]) {
		return false
	}
	for _, v := range n.In[:3] {
		if f.uses[v] != 1 {
			return false
		}
	}
	made := Node{Kind: op.JoinedAttention, Attr: n.Attr, At: n.At, In: append(slices.Clone(f.Nodes[at].In), n.In[3:]...), Out: n.Out}
	call := f.Call(made)
	back, err := op.Make(op.JoinedAttentionGrad, n.Attr, append([]op.Type{call.In[0], call.Out[0], call.Out[1], call.Out[0]}, call.In[1:]...)...)
	if err != nil || !f.has(call) || !f.has(back) {
		return false
	}
	f.Nodes[at], f.Nodes[i] = Node{}, made
	return true
}

// linearPlus turns a matmul with a bias and the sum with something else into LinearPlus.
func (f *fuser) linearPlus(i int) bool {
	n := f.Nodes[i]
	for side := range 2 {
		product, ok := f.made(n.In[side], op.MatMul, 1)
		a, other := product.Attr, n.In[1-side]
		if !ok || !a.Bias || !a.TransB || a.TransA || a.Accumulate || a.Exact || n.Attr.Accumulate || !f.Types[other].Equal(f.Types[n.In[side]]) {
			continue
		}
		made := Node{Kind: op.LinearPlus, At: product.At, In: append(slices.Clone(product.In), other), Out: n.Out}
		if f.has(f.Call(made)) {
			f.drop(product)
			f.Nodes[i] = made
			f.maker[n.Out[0]] = i
			return true
		}
	}
	return false
}
