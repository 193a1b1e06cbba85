package autograd

import (
	"spillway/graph"
	"spillway/op"
	"spillway/shape"
)

// Gradients of the ops on tensors of any shape.

func gradBinary(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := make([]graph.Value, 2)
	for i, v := range n.In {
		if !r.Needs(v) {
			continue
		}
		g := dy[0]
		if f := n.Attr.Func2; f != op.Plus && !(f == op.Minus && i == 0) {
			g = r.EmitOne(op.BinaryGrad, op.Attr{Func2: f, Second: i == 1}, n.In[0], n.In[1], dy[0])
		}
		dx[i] = r.unrepeat(g, r.TypeOf(v).Shape)
	}
	return dx
}

// unrepeat sums a gradient over the dimensions that something of a smaller shape was repeated over,
// by one reduction for each group of neighbours.
func (r *Reverse) unrepeat(g graph.Value, to shape.Shape) graph.Value {
	from := r.TypeOf(g).Shape
	added := len(from) - len(to)
	repeated := func(i int) bool { return i < added || to[i-added] == 1 && from[i] != 1 }
	for end := len(from); end > 0; {
		if !repeated(end - 1) {
			end--
			continue
		}
		first := end - 1
		for first > 0 && repeated(first-1) {
			first--
		}
		g = r.EmitOne(op.Reduce, op.Attr{Reduction: op.ReduceSum, Axis: int64(len(from) - end), Dims: int64(end - first), KeepDims: true}, g)
		end = first
	}
	return r.reshape(g, to)
}

func (r *Reverse) reshape(g graph.Value, to shape.Shape) graph.Value {
	if r.err != nil || r.TypeOf(g).Shape.Equal(to) {
		return g
	}
	return r.EmitOne(op.Reshape, op.Attr{Shape: to}, g)
}

// kept is the shape of what a reduction makes, with dimensions of 1 for what it reduced.
func kept(x shape.Shape, a op.Attr) shape.Shape {
	out := append(shape.Shape(nil), x...)
	for i := range max(a.Dims, 1) {
		out = out.With(a.Axis+i, 1)
	}
	return out
}

func gradReduce(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	x := r.TypeOf(n.In[0]).Shape
	switch n.Attr.Reduction {
	case op.ReduceSum, op.ReduceMean:
		g := dy[0]
		if n.Attr.Reduction == op.ReduceMean {
			_, along, _ := x.Around(n.Attr.Axis, n.Attr.Dims)
			g = r.EmitOne(op.Scale, op.Attr{Scale: 1 / float64(along)}, g)
		}
		return r.Emit(op.Expand, op.Attr{Shape: x}, r.reshape(g, kept(x, n.Attr)))
	}
	return r.Emit(op.ReduceGrad, n.Attr, n.In[0], n.Out[0], dy[0])
}

func gradSoftmax(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	return r.Emit(op.SoftmaxGrad, n.Attr, n.Out[0], dy[0])
}

func gradCumSum(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	a := n.Attr
	a.Inverse = !a.Inverse
	return r.Emit(op.CumSum, a, dy[0])
}

func gradReshape(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	return r.Emit(op.Reshape, op.Attr{Shape: r.TypeOf(n.In[0]).Shape}, dy[0])
}

func gradPermute(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	back := make([]int64, len(n.Attr.Axes))
	for i, axis := range n.Attr.Axes {
		back[axis] = int64(i)
	}
	return r.Emit(op.Permute, op.Attr{Axes: back}, dy[0])
}

func gradExpand(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	return []graph.Value{r.unrepeat(dy[0], r.TypeOf(n.In[0]).Shape)}
}

func gradSlice(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	a := n.Attr
	_, a.Length, _ = r.TypeOf(n.In[0]).Shape.Around(a.Axis, 1)
	return r.Emit(op.Pad, a, dy[0])
}

func gradPad(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	a := n.Attr
	_, a.Length, _ = r.TypeOf(n.In[0]).Shape.Around(a.Axis, 1)
	return r.Emit(op.Slice, a, dy[0])
}

// gradScatterAdd: each element was added once, to the place that its id names.
func gradScatterAdd(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	return []graph.Value{0, r.EmitOne(op.Gather, op.Attr{Axis: n.Attr.Axis}, dy[0], n.In[0])}
}

func gradGather(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	a := op.Attr{Axis: n.Attr.Axis}
	_, a.Length, _ = r.TypeOf(n.In[0]).Shape.Around(a.Axis, 1)
	return []graph.Value{r.EmitOne(op.GatherGrad, a, n.In[1], dy[0]), 0}
}

// gradScatterReduce shares the gradient of a place out between those that are as large as what is there.
func gradScatterReduce(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	x, ids, z, y := n.In[0], n.In[1], n.In[2], n.Out[0]
	along := op.Attr{Axis: n.Attr.Axis}
	taken := func(v graph.Value) graph.Value { return r.EmitOne(op.Gather, along, v, ids) }
	pair := func(f op.Func2, v, w graph.Value) graph.Value { return r.EmitOne(op.Binary, op.Attr{Func2: f}, v, w) }
	equal := op.Attr{Func2: op.Equal}
	there, came := r.EmitOne(op.Compare, equal, x, y), r.EmitOne(op.Compare, equal, z, taken(y))
	all := along
	_, all.Length, _ = r.TypeOf(x).Shape.Around(all.Axis, 1)
	share := pair(op.Divide, dy[0], pair(op.Plus, there, r.EmitOne(op.GatherGrad, all, ids, came)))
	dx := make([]graph.Value, 3)
	if r.Needs(x) {
		dx[0] = pair(op.Times, there, share)
	}
	if r.Needs(z) {
		dx[2] = pair(op.Times, came, taken(share))
	}
	return dx
}
