package autograd

import (
	"spillway/graph"
	"spillway/op"
)

// Gradients of convolutions, pooling, norms over groups and resampling.

// withShape is the attributes of a gradient op that makes something of v's shape.
func (r *Reverse) withShape(a op.Attr, v graph.Value) op.Attr {
	a.Shape, a.Bias = r.TypeOf(v).Shape, false
	return a
}

func gradConv(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := make([]graph.Value, len(n.In))
	if r.Needs(n.In[0]) {
		dx[0] = r.EmitOne(op.ConvInput, r.withShape(n.Attr, n.In[0]), dy[0], n.In[1])
	}
	if r.Needs(n.In[1]) {
		dx[1] = r.EmitOne(op.ConvWeight, r.withShape(n.Attr, n.In[1]), n.In[0], dy[0])
	}
	if n.Attr.Bias && r.Needs(n.In[2]) {
		dx[2] = r.EmitOne(op.SumRows, op.Attr{InnerDims: 1}, dy[0])
	}
	return dx
}

// gradConvInput: what a transposed convolution makes is x of a convolution, what it takes is y.
func gradConvInput(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := make([]graph.Value, len(n.In))
	if n.Attr.Plus {
		dx[2] = dy[0]
		n.Attr.Plus = false
	}
	if r.Needs(n.In[0]) {
		dx[0] = r.EmitOne(op.Conv, op.Attr{Spatial: n.Attr.Spatial}, dy[0], n.In[1])
	}
	if r.Needs(n.In[1]) {
		dx[1] = r.EmitOne(op.ConvWeight, r.withShape(n.Attr, n.In[1]), dy[0], n.In[0])
	}
	return dx
}

func gradPool(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	a := r.withShape(n.Attr, n.In[0])
	if a.Reduction == op.ReduceMax {
		return r.Emit(op.PoolGrad, a, n.In[0], dy[0])
	}
	return r.Emit(op.PoolGrad, a, dy[0])
}

// gradGroupNorm: the gradients of running statistics are how far they are from those of the batch, the
// variance with n-1 as PyTorch has it, so that a step of their momentum along it is their update.
func gradGroupNorm(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := make([]graph.Value, len(n.In))
	if dy[1] != 0 || dy[2] != 0 {
		return dx // statistics have no gradients
	}
	if dy[0] != 0 {
		r.gradNormalized(n, dy[0], dx)
	}
	if !n.Attr.Running {
		return dx
	}
	at, rows := len(n.In)-2, float64(r.TypeOf(n.In[0]).Shape.Rows())
	if r.Needs(n.In[at]) || r.Needs(n.In[at+1]) {
		stat := r.TypeOf(n.Out[1])
		drift := r.Emit(op.NormDrift, op.Attr{Scale: rows / max(rows-1, 1)}, r.fit(n.In[at], stat), r.fit(n.In[at+1], stat), n.Out[1], n.Out[2])
		for i := range 2 {
			if dx[at+i] = drift[i]; n.Attr.Scale != 0 { // a later call of the same norm moves them on
				dx[at+i] = r.EmitOne(op.Scale, op.Attr{Scale: n.Attr.Scale}, drift[i])
			}
		}
	}
	return dx
}

// gradNormalized fills in the gradients of what is normalized, of weight and bias, and of what is added.
func (r *Reverse) gradNormalized(n graph.Node, dy graph.Value, dx []graph.Value) {
	a := n.Attr
	a.Running, a.InputOnly, a.Scale = false, true, 0
	in, plus := []graph.Value{n.In[0]}, 1
	if a.Bias {
		in, plus = append(in, n.In[1]), 3
		a.InputOnly = !r.Needs(n.In[1]) && !r.Needs(n.In[2])
	}
	if a.Bias && a.Func != op.NoFunc {
		in = append(in, n.In[2])
	}
	if a.Plus {
		in = append(in, n.In[plus])
	}
	made := r.Emit(op.GroupNormGrad, a, append(in, n.Out[1], n.Out[2], dy)...)
	dx[0] = made[0]
	if a.Bias && !a.InputOnly {
		dx[1], dx[2] = made[1], made[2]
	}
	if a.Plus {
		dx[plus] = made[len(made)-1]
	}
}

// gradFollow: a statistic's gradient is how far it is from what it follows, whatever the loss: a step of its momentum along it is its update.
func gradFollow(r *Reverse, n graph.Node, _ []graph.Value) []graph.Value {
	dx := make([]graph.Value, 2)
	if r.Needs(n.In[1]) {
		dx[1] = r.EmitOne(op.Binary, op.Attr{Func2: op.Minus}, n.In[1], n.In[0])
	}
	return dx
}

func gradResample(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	a := n.Attr
	_, a.Rows, _ = r.TypeOf(n.In[0]).Shape.Around(a.Axis, 1)
	return r.Emit(op.ResampleGrad, a, dy[0])
}
