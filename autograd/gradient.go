package autograd

import (
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/shape"
)

// within is where a gradient is written that is part of a block's code.
type within struct {
	b     *graph.Builder
	needs map[graph.Value]bool // by value as model code has it
}

// Gradient is the gradient of y by each of some values of the same block, which may be params: PyTorch's autograd.grad with create_graph=True. What it gives are
// values like others, which a loss may use, such as one that punishes long gradients, and whose own gradients the backward pass has. dy is what y's
// gradient starts from, of its shape (grad_outputs), or no value for ones.
//
// It passes all ops that have gradients; that of attention, of fused cross-entropies and of largest numbers in windows has no gradient itself, which is an error where one is wanted.
func Gradient(b *graph.Builder, y, dy graph.Value, of ...graph.Value) []graph.Value {
	given := make([]graph.Value, len(of))
	t := b.TypeOf(y)
	if b.Err() != nil {
		return given
	}
	if dy == 0 {
		dy = b.Expand(b.Number(y, 1), t.Shape...)
	}
	if s := b.TypeOf(dy).Shape; b.Err() == nil && !s.Equal(t.Shape) {
		b.Fail("gradient: of %v from %v; what it starts from has the same shape", t, b.TypeOf(dy))
	}
	r := &Reverse{within: &within{b, map[graph.Value]bool{}}, grads: map[graph.Value]graph.Value{}}
	for _, v := range of {
		if !b.TypeOf(v).DType.Float() && b.Err() == nil {
			b.Fail("gradient: by %v, which are no real numbers", b.TypeOf(v))
		}
		r.within.needs[v] = true
	}
	nodes := b.Recorded()
	r.within.mark(nodes)
	r.add(y, dy)
	for i := len(nodes) - 1; i >= 0; i-- {
		n := nodes[i]
		if err := r.node(n); err != nil && b.Err() == nil {
			b.Fail("gradient: %s at %s: %w", n.Kind, n.At, err)
		}
		if b.Err() != nil {
			return given
		}
	}
	for i, v := range of {
		if given[i] = r.grads[v]; given[i] == 0 {
			b.Fail("gradient: %v is not computed from value %d, which is %v; leave that one out", t, i, b.TypeOf(v))
		}
	}
	return given
}

// mark finds what is computed from the values that gradients are wanted of.
func (w *within) mark(nodes []graph.Node) {
	for _, n := range nodes {
		if rule, known := rules[n.Kind]; (rule != nil || !known) && slices.ContainsFunc(n.In, func(v graph.Value) bool { return w.needs[v] }) {
			for _, v := range n.Out {
				w.needs[v] = w.needs[v] || w.b.TypeOf(v).DType.Float()
			}
		}
	}
}

// rule of an op. Within a block that of norms and gates is made of ops whose gradients have gradients.
func (r *Reverse) rule(kind op.Kind) (Rule, bool) {
	if r.within != nil {
		switch kind {
		case op.LayerNorm, op.RMSNorm, op.GroupNorm:
			return composedNorm, true
		case op.Gated:
			return composedGated, true
		}
	}
	rule, ok := rules[kind]
	return rule, ok
}

func composedGated(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	b, gate, up := r.within.b, n.In[0], n.In[1]
	return []graph.Value{
		b.Apply(op.UnaryGrad, op.Attr{Func: n.Attr.Func}, gate, b.Times(up, dy[0]))[0],
		b.Times(b.Map(n.Attr.Func, 0, 0, gate), dy[0]),
	}
}

// composedNorm is the gradient of a norm by plain ops. x is seen as [outer rows groups width], and normalized over rows and width.
func composedNorm(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	b, x, t := r.within.b, n.In[0], r.TypeOf(n.In[0]).Shape
	dx := make([]graph.Value, len(n.In))
	if dy[0] == 0 || n.Attr.Plus || n.Attr.Func != op.NoFunc {
		r.fail(fmt.Errorf("has a gradient within a block only as it is, without statistics and what is fused with it"))
		return dx
	}
	c := t.Last()
	dims := shape.Shape{t.Rows(), 1, 1, c}
	switch n.Kind {
	case op.RMSNorm:
		width := r.TypeOf(n.In[1]).Shape.Last()
		dims = shape.Shape{t.Rows(), 1, c / width, width}
	case op.GroupNorm:
		if dims = (shape.Shape{1, t.Rows(), c, 1}); !n.Attr.WholeBatch {
			dims = shape.Shape{t[0], t.Rows() / t[0], n.Attr.Spatial.Groups, c / n.Attr.Spatial.Groups}
		}
	}
	wide := func(v graph.Value) graph.Value { return b.Reshape(b.Cast(v, dtype.F32), dims...) }
	mean := func(v graph.Value) graph.Value { return b.Reduce(op.ReduceMean, v, true, 1, 3) }
	off, d := wide(x), wide(dy[0])
	if n.Kind != op.RMSNorm {
		off = b.Sub(off, mean(off))
	}
	rate := b.Unary(op.Rsqrt, b.PlusConstant(mean(b.Unary(op.Square, off)), n.Attr.Eps))
	unit, scaled := b.Times(off, rate), d
	weighted := n.Kind != op.GroupNorm || n.Attr.Bias
	if weighted {
		w := b.Cast(n.In[1], dtype.F32)
		if n.Kind == op.GroupNorm {
			w = b.Reshape(w, dims[2], dims[3])
		}
		scaled = b.Times(d, w)
	}
	part := b.Sub(scaled, b.Times(unit, mean(b.Times(scaled, unit))))
	if n.Kind != op.RMSNorm {
		part = b.Sub(part, mean(scaled))
	}
	dx[0] = b.Reshape(b.Times(rate, part), t...)
	summed := func(v graph.Value, to graph.Value) graph.Value {
		axes := []int{0, 1}
		if n.Kind == op.RMSNorm {
			axes = []int{0, 1, 2}
		}
		return b.Reshape(b.Sum(v, axes...), r.TypeOf(to).Shape...)
	}
	if weighted && r.Needs(n.In[1]) {
		dx[1] = summed(b.Times(d, unit), n.In[1])
	}
	if weighted && n.Attr.Bias && r.Needs(n.In[2]) {
		dx[2] = summed(d, n.In[2])
	}
	return dx
}
