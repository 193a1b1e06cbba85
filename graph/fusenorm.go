package graph

import (
	"slices"

	"spillway/op"
)

// FuseNorms gives a program whose norms over groups add and apply the ReLU that follow them by themselves, which
// saves passes over their results, and saving these for the backward. Where nothing is to be done it gives the program
// itself, which it never changes.
func FuseNorms(p *Program) *Program {
	if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Kind == op.GroupNorm }) {
		return p
	}
	f := newFuser(p, nil)
	fused := false
	for i, n := range f.Nodes {
		if n.Kind == op.Unary && n.Attr.Func == op.ReLU {
			fused = f.cutNorm(i) || fused
		}
	}
	if !fused {
		return p
	}
	return f.compact()
}

// cutNorm puts the ReLU of node i, and a sum before it, into the norm they belong to, which comes to their place.
func (f *fuser) cutNorm(i int) bool {
	relu := f.Nodes[i]
	if n, ok := f.made(relu.In[0], op.GroupNorm, 1); ok && f.takes(n) {
		f.drop(n)
		n.Attr.Func, n.Out = op.ReLU, []Value{relu.Out[0], n.Out[1], n.Out[2]}
		f.put(i, n)
		return true
	}
	sum, ok := f.made(relu.In[0], op.Add, 1)
	if !ok || sum.Attr.Accumulate {
		return false
	}
	for side := range 2 {
		n, ok := f.made(sum.In[side], op.GroupNorm, 1)
		if !ok || !f.takes(n) || !f.Types[sum.In[0]].Equal(f.Types[sum.In[1]]) {
			continue
		}
		f.drop(n, sum)
		at := 1
		if n.Attr.Bias {
			at = 3
		}
		n.Attr.Func, n.Attr.Plus = op.ReLU, true
		n.In, n.Out = slices.Insert(slices.Clone(n.In), at, sum.In[1-side]), []Value{relu.Out[0], n.Out[1], n.Out[2]}
		f.put(i, n)
		return true
	}
	return false
}

// takes says that a norm has nothing behind it yet, and that nothing reads its statistics.
func (f *fuser) takes(n Node) bool {
	return n.Attr.Func == op.NoFunc && f.uses[n.Out[1]] == 0 && f.uses[n.Out[2]] == 0
}

// put makes n the node at i.
func (f *fuser) put(i int, n Node) {
	f.Nodes[i] = n
	for _, v := range n.Out {
		f.maker[v] = i
	}
}
