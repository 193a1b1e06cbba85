package autograd

import (
	"slices"

	"spillway/graph"
	"spillway/op"
)

// Fuse puts fused ops (op.Kind.Fused) in place of gradient nodes wherever has says that the device has a kernel:
// the gradient of a layer norm that is added to something adds it itself, and that of an activation sums its
// columns for a bias. Forward nodes and the numbers of values stay, so that what is saved does not depend on it.
func (j *Joint) Fuse(has func(op.Call) bool) {
	p := j.Program
	uses, maker := map[graph.Value]int{}, map[graph.Value]int{}
	for _, out := range p.Outputs {
		uses[out.Value]++
	}
	for i, n := range p.Nodes {
		for _, v := range n.In {
			uses[v]++
		}
		for _, v := range n.Out {
			maker[v] = i
		}
	}
	gone := map[int]bool{}
	for i := j.Forward; i < len(p.Nodes); i++ {
		switch n := p.Nodes[i]; n.Kind {
		case op.Add:
			j.fuseNormPlus(i, uses, maker, has, gone)
		case op.SumRows:
			j.fuseSums(i, maker, has, gone)
		}
	}
	var nodes []graph.Node
	for i, n := range p.Nodes {
		if !gone[i] {
			nodes = append(nodes, n)
		}
	}
	p.Nodes = nodes
}

// fuseNormPlus turns the gradient of a norm and the sum with what is there before into one node, where the sum was.
func (j *Joint) fuseNormPlus(i int, uses map[graph.Value]int, maker map[graph.Value]int, has func(op.Call) bool, gone map[int]bool) {
	p := j.Program
	sum := p.Nodes[i]
	for side := range 2 {
		at, ok := maker[sum.In[side]]
		if !ok || at < j.Forward || gone[at] || p.Nodes[at].Kind != op.LayerNormGrad || p.Nodes[at].Out[0] != sum.In[side] || uses[sum.In[side]] != 1 {
			continue
		}
		other := sum.In[1-side]
		if !p.Type(other).Equal(p.Type(sum.In[side])) || sum.Attr.Accumulate {
			continue
		}
		n := p.Nodes[at]
		n.Kind, n.In, n.Out = op.LayerNormGradPlus, append(slices.Clone(n.In), other), slices.Clone(n.Out)
		n.Out[0] = sum.Out[0]
		if !has(p.Call(n)) {
			continue
		}
		// Gradients of its weights that somebody reads before the sum would come too late.
		for _, between := range p.Nodes[at+1 : i] {
			if slices.ContainsFunc(between.In, func(v graph.Value) bool { return slices.Contains(n.Out[1:], v) }) {
				return
			}
		}
		p.Nodes[i], gone[at] = n, true
		for _, v := range n.Out {
			maker[v] = i
		}
		return
	}
}

// fuseSums turns the gradient of an activation and the sums of its columns into one node, where the gradient was.
func (j *Joint) fuseSums(i int, maker map[graph.Value]int, has func(op.Call) bool, gone map[int]bool) {
	p := j.Program
	sums := p.Nodes[i]
	at, ok := maker[sums.In[0]]
	if !ok || at < j.Forward || gone[at] || p.Nodes[at].Kind != op.UnaryGrad || sums.Attr.InnerDims != 1 || sums.Attr.Accumulate {
		return
	}
	n := p.Nodes[at]
	n.Kind, n.Out = op.UnaryGradSums, []graph.Value{n.Out[0], sums.Out[0]}
	if has(p.Call(n)) {
		p.Nodes[at], gone[i] = n, true
		maker[sums.Out[0]] = at
	}
}
