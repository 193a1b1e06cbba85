package autograd

import (
	"fmt"
	"math"

	"spillway/graph"
	"spillway/op"
)

// Gradients of the ops that make gradients. They are written with ops that have gradients again, so that there is no last one. h is the gradient of what such an op makes
// times what it was given, dy.

func gradSumRows(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	return r.Emit(op.Expand, op.Attr{Shape: r.TypeOf(n.In[0]).Shape}, r.fit(dy[0], op.Type{DType: r.TypeOf(n.In[0]).DType, Shape: r.TypeOf(dy[0]).Shape}))
}

func gradEmbeddingGrad(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	return []graph.Value{0, r.EmitOne(op.Embedding, op.Attr{}, n.In[0], dy[0])}
}

func gradConvWeight(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	dx := make([]graph.Value, 2)
	if r.Needs(n.In[0]) {
		dx[0] = r.EmitOne(op.ConvInput, r.withShape(op.Attr{Spatial: n.Attr.Spatial}, n.In[0]), n.In[1], dy[0])
	}
	if r.Needs(n.In[1]) {
		dx[1] = r.EmitOne(op.Conv, op.Attr{Spatial: n.Attr.Spatial}, n.In[0], dy[0])
	}
	return dx
}

func gradResampleGrad(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	a := n.Attr
	_, a.Length, _ = r.TypeOf(n.In[0]).Shape.Around(a.Axis, 1)
	a.Rows = 0
	return r.Emit(op.Resample, a, dy[0])
}

func gradPoolGrad(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	if n.Attr.Reduction == op.ReduceMax {
		r.fail(fmt.Errorf("of a maximum has no gradient itself; take means of windows, or strides"))
		return make([]graph.Value, 2)
	}
	a := n.Attr
	a.Shape = nil
	return r.Emit(op.Pool, a, dy[0])
}

// gradReduceGrad: all are linear in dy; only that of a logarithm of a sum depends on x too.
func gradReduceGrad(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	x, y, given := n.In[0], n.In[1], n.In[2]
	shape := r.TypeOf(x).Shape
	sum := func(v graph.Value) graph.Value { // over what was reduced
		a := n.Attr
		a.Reduction = op.ReduceSum
		return r.EmitOne(op.Reduce, a, v)
	}
	dx := make([]graph.Value, 3)
	if r.Needs(given) {
		ones := r.EmitOne(op.Unary, op.Attr{Func: op.Power}, given) // to the power of 0
		dx[2] = r.reshape(sum(r.two(op.Times, dy[0], r.EmitOne(op.ReduceGrad, n.Attr, x, y, ones))), r.TypeOf(given).Shape)
	}
	if !r.Needs(x) && !r.Needs(y) {
		return dx
	}
	switch n.Attr.Reduction {
	case op.ReduceMax, op.ReduceMin, op.ReduceSum, op.ReduceMean:
		dx[0], dx[1] = r.zeros(x), r.zeros(y)
	case op.ReduceLogSumExp: // dy·exp(x - y)
		dx[0] = r.two(op.Times, dy[0], n.Out[0])
		dx[1] = r.times(r.reshape(sum(dx[0]), r.TypeOf(y).Shape), -1)
	default:
		r.fail(fmt.Errorf("of %v over %v has no gradient itself; multiply logarithms", n.Attr.Reduction, shape))
	}
	return dx
}

func gradSoftmaxGrad(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	y, given, g := n.In[0], n.In[1], dy[0]
	sum := func(v graph.Value) graph.Value {
		return r.EmitOne(op.Reduce, op.Attr{Reduction: op.ReduceSum, Axis: n.Attr.Axis, KeepDims: true}, v)
	}
	if n.Attr.Log { // dy - exp(y)·Σdy
		p := r.one(op.Exp, 0, y)
		gp := r.two(op.Times, g, p)
		return []graph.Value{r.times(r.two(op.Times, gp, sum(given)), -1), r.two(op.Minus, g, sum(gp))}
	}
	gy := sum(r.two(op.Times, g, y)) // y·(dy - Σy·dy)
	first := r.two(op.Minus, r.two(op.Times, g, r.two(op.Minus, given, sum(r.two(op.Times, y, given)))), r.two(op.Times, given, gy))
	return []graph.Value{first, r.two(op.Times, y, r.two(op.Minus, g, gy))}
}

// gradUnaryGrad: f'(x)·dy has the gradients f”(x)·h by x and f'(x)·g by dy.
func gradUnaryGrad(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	x, given := n.In[0], n.In[1]
	dx := make([]graph.Value, 2)
	if r.Needs(given) {
		dx[1] = r.EmitOne(op.UnaryGrad, n.Attr, x, dy[0])
	}
	if r.Needs(x) {
		dx[0] = r.bent(n.Attr, x, func() graph.Value { return r.two(op.Times, dy[0], given) })
	}
	return dx
}

// bent is f”(x)·h.
func (r *Reverse) bent(a op.Attr, x graph.Value, product func() graph.Value) graph.Value {
	slope := func(f op.Func, alpha, beta float64, x, h graph.Value) graph.Value {
		return r.EmitOne(op.UnaryGrad, op.Attr{Func: f, Alpha: alpha, Beta: beta}, x, h)
	}
	times := func(v, w graph.Value) graph.Value { return r.two(op.Times, v, w) }
	switch a.Func {
	case op.ReLU, op.LeakyReLU, op.Clamp, op.Abs, op.Hardsigmoid, op.Round, op.Floor, op.Sign:
		return r.zeros(x)
	}
	h := product()
	sigmoid := func(x graph.Value) graph.Value { return slope(op.Sigmoid, 0, 0, x, h) }
	switch a.Func {
	case op.Tanh:
		return r.times(times(r.one(op.Tanh, 0, x), slope(op.Tanh, 0, 0, x, h)), -2)
	case op.Sigmoid: // 1 - 2σ(x) is -tanh(x/2)
		return r.times(times(r.one(op.Tanh, 0, r.times(x, 0.5)), sigmoid(x)), -1)
	case op.LogSigmoid:
		return r.times(sigmoid(x), -1)
	case op.SiLU:
		s := sigmoid(x)
		return r.two(op.Minus, r.times(s, 2), times(times(x, r.one(op.Tanh, 0, r.times(x, 0.5))), s))
	case op.GELU: // φ(x)·(2 - x²)
		p := r.times(slope(op.Erf, 0, 0, r.times(x, math.Sqrt2/2), h), math.Sqrt2/4)
		return r.two(op.Minus, r.times(p, 2), times(r.one(op.Square, 0, x), p))
	case op.GELUTanh: // x·σ(2u) with u = c·(x + a·x³)
		const cubic = 0.044715
		c := math.Sqrt(2 / math.Pi)
		square := r.one(op.Square, 0, x)
		u := r.times(r.two(op.Plus, x, r.times(times(square, x), cubic)), c)
		first := r.times(r.two(op.Plus, r.one(op.Power, 0, x), r.times(square, 3*cubic)), c) // u'
		all := r.two(op.Plus, r.times(first, 4), r.times(square, 12*cubic*c))                // 4·u' + 2·x·u”
		all = r.two(op.Minus, all, r.times(times(times(x, r.one(op.Square, 0, first)), r.one(op.Tanh, 0, u)), 4))
		return times(sigmoid(r.times(u, 2)), all)
	case op.Mish: // x·t with t = tanh(softplus(x))
		up := r.EmitOne(op.Unary, op.Attr{Func: op.Softplus, Alpha: 1, Beta: 20}, x)
		t, s, w := r.one(op.Tanh, 0, up), r.one(op.Sigmoid, 0, x), slope(op.Tanh, 0, 0, up, h)
		inner := r.two(op.Minus, times(s, r.one(op.Sigmoid, 0, r.times(x, -1))), r.times(times(t, r.one(op.Square, 0, s)), 2))
		return times(w, r.two(op.Plus, r.times(s, 2), times(x, inner)))
	case op.ELU:
		return r.two(op.Minus, slope(op.ELU, a.Alpha, 0, x, h), slope(op.ReLU, 0, 0, x, h))
	case op.SELU:
		const scale = 1.0507009873554804934193349852946
		return r.two(op.Minus, slope(op.SELU, 0, 0, x, h), r.times(slope(op.ReLU, 0, 0, x, h), scale))
	case op.Softplus:
		z := r.times(x, a.Alpha)
		return r.times(slope(op.Clamp, -math.MaxFloat32, a.Beta, z, sigmoid(z)), a.Alpha)
	case op.Hardswish:
		return r.times(slope(op.Clamp, -3, 3, x, h), 1.0/3)
	case op.Softsign: // f' = 1/(1 + |x|)²
		first := slope(op.Softsign, 0, 0, x, r.one(op.Power, 0, x))
		return r.times(times(times(r.one(op.Sign, 0, x), r.one(op.Power, 1.5, first)), h), -2)
	case op.Exp, op.Expm1:
		return slope(op.Exp, 0, 0, x, h)
	case op.Log, op.Log1p: // f” = -f'²
		return r.times(slope(a.Func, 0, 0, x, slope(a.Func, 0, 0, x, h)), -1)
	case op.Sqrt:
		return r.times(times(r.one(op.Power, -1.5, x), h), -0.25)
	case op.Rsqrt:
		return r.times(times(r.one(op.Power, -2.5, x), h), 0.75)
	case op.Square:
		return r.times(h, 2)
	case op.Power:
		if a.Alpha == 0 || a.Alpha == 1 {
			return r.zeros(x)
		}
		return r.times(times(r.one(op.Power, a.Alpha-2, x), h), a.Alpha*(a.Alpha-1))
	case op.Sin, op.Cos:
		return r.times(times(r.one(a.Func, 0, x), h), -1)
	case op.Erf:
		return r.times(times(x, slope(op.Erf, 0, 0, x, h)), -2)
	}
	r.fail(fmt.Errorf("of %v has no gradient itself", a.Func))
	return 0
}

// gradBinaryGrad: the slope of f by x, or by y, times dz. Second is which.
func gradBinaryGrad(r *Reverse, n graph.Node, dy []graph.Value) []graph.Value {
	x, y, given, second := n.In[0], n.In[1], n.In[2], n.Attr.Second
	dx := make([]graph.Value, 3)
	if r.Needs(given) {
		dx[2] = r.EmitOne(op.BinaryGrad, n.Attr, x, y, dy[0])
	}
	if !r.Needs(x) && !r.Needs(y) {
		return dx
	}
	two := r.two
	h := two(op.Times, dy[0], given)
	var byX, byY graph.Value
	switch n.Attr.Func2 {
	case op.Times:
		if byY = h; second {
			byX, byY = h, 0
		}
	case op.Divide:
		once := two(op.Divide, two(op.Divide, h, y), y)
		if byY = r.times(once, -1); second {
			byX, byY = byY, r.times(two(op.Divide, two(op.Times, once, x), y), 2)
		}
	case op.Pow:
		p, log := two(op.Pow, x, y), r.one(op.Log, 0, x)
		q := two(op.Divide, two(op.Times, p, h), x)                       // h·x^(y-1)
		mixed := two(op.Plus, q, two(op.Times, q, two(op.Times, y, log))) // by both
		if byX, byY = mixed, two(op.Times, two(op.Times, p, h), r.one(op.Square, 0, log)); !second {
			less := two(op.Minus, two(op.Times, q, y), q)
			byX, byY = two(op.Times, two(op.Divide, less, x), y), mixed
		}
	case op.PReLU: // 1 or y by x, 0 or x by y
		low := two(op.Minus, h, r.EmitOne(op.UnaryGrad, op.Attr{Func: op.ReLU}, r.EmitOne(op.Expand, op.Attr{Shape: r.TypeOf(h).Shape}, x), h))
		if byY = low; second {
			byX, byY = low, 0
		}
	case op.Plus, op.Minus, op.Maximum, op.Minimum, op.If, op.Unless:
	}
	for i, g := range []graph.Value{byX, byY} {
		switch v := n.In[i]; {
		case !r.Needs(v):
		case g == 0:
			dx[i] = r.zeros(v)
		default:
			dx[i] = r.unrepeat(g, r.TypeOf(v).Shape)
		}
	}
	return dx
}

func (r *Reverse) two(f op.Func2, x, y graph.Value) graph.Value {
	return r.EmitOne(op.Binary, op.Attr{Func2: f}, x, y)
}

func (r *Reverse) one(f op.Func, alpha float64, x graph.Value) graph.Value {
	return r.EmitOne(op.Unary, op.Attr{Func: f, Alpha: alpha}, x)
}

func (r *Reverse) times(x graph.Value, by float64) graph.Value {
	return r.EmitOne(op.Scale, op.Attr{Scale: by}, x)
}

// zeros of the type of x, of NaN too.
func (r *Reverse) zeros(x graph.Value) graph.Value {
	return r.EmitOne(op.Compare, op.Attr{Func2: op.Less}, x, x)
}
