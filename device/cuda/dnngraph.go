package cuda

import (
	"math"

	"spillway/device/cuda/driver"
)

// grapher writes attention down as a graph of plain operations: the pattern cuDNN knows
// as one kernel. Dimensions are samples, heads, rows, columns.
type grapher struct {
	h       heads
	element int
	b, n, k int64 // samples, heads and key heads of the graph: of a slice
	graph   driver.DNNGraph
	made    int64 // tensors so far
}

func (h heads) grapher(s slice) *grapher {
	return &grapher{h: h, element: tensors[h.c.In[0].DType], b: s.samples, n: s.keys * (h.heads / h.keys), k: s.keys}
}

// tensor with elements in order.
func (g *grapher) tensor(element int, shape [4]int64) *driver.Tensor {
	g.made++
	return &driver.Tensor{ID: g.made, Type: element, Shape: shape, Strides: [4]int64{shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}}
}

func (g *grapher) virtual(element int, shape [4]int64) *driver.Tensor {
	t := g.tensor(element, shape)
	t.Virtual = true
	return t
}

// outside is a tensor in memory.
func (g *grapher) outside(t *driver.Tensor) *driver.Tensor {
	g.graph.Outside = append(g.graph.Outside, t)
	return t
}

// rows is an operand or output: heads of one row side by side, as many as the whole
// call has.
func (g *grapher) rows(heads, all, rows int64) *driver.Tensor {
	t := g.tensor(g.element, [4]int64{g.b, heads, rows, g.h.d})
	t.Strides = [4]int64{rows * all * g.h.d, g.h.d, all * g.h.d, 1}
	return g.outside(t)
}

func (g *grapher) queries() *driver.Tensor { return g.rows(g.n, g.h.heads, g.h.t) }
func (g *grapher) keys() *driver.Tensor    { return g.rows(g.k, g.h.keys, g.h.s) }

// turned is a tensor in memory with rows and columns exchanged.
func (g *grapher) turned(t *driver.Tensor) *driver.Tensor {
	t.Shape[2], t.Shape[3] = t.Shape[3], t.Shape[2]
	t.Strides[2], t.Strides[3] = t.Strides[3], t.Strides[2]
	return t
}

// lines is a number per query and head, in memory, of a call of so many heads.
func (g *grapher) lines(all int64) *driver.Tensor {
	t := g.tensor(driver.TensorF32, [4]int64{g.b, g.n, g.h.t, 1})
	t.Strides[0] = all * g.h.t
	return g.outside(t)
}

func (g *grapher) number(x float32) *driver.Tensor {
	t := g.tensor(driver.TensorF32, [4]int64{1, 1, 1, 1})
	t.Number = &x
	return t
}

// scores and sums are of pairs of queries and keys, and of queries, within the graph.
func (g *grapher) scores(element int) *driver.Tensor {
	return g.virtual(element, [4]int64{g.b, g.n, g.h.t, g.h.s})
}
func (g *grapher) sums() *driver.Tensor {
	return g.virtual(driver.TensorF32, [4]int64{g.b, g.n, g.h.t, 1})
}

func (g *grapher) add(o driver.Operation) *driver.Tensor {
	g.graph.Operations = append(g.graph.Operations, o)
	return o.Y
}
func (g *grapher) pointwise(mode int, y, x, b *driver.Tensor) *driver.Tensor {
	return g.add(driver.Operation{Kind: driver.Pointwise, Mode: mode, X: x, B: b, Y: y})
}
func (g *grapher) matmul(y, x, b *driver.Tensor) *driver.Tensor {
	return g.add(driver.Operation{Kind: driver.MatMul, X: x, B: b, Y: y})
}
func (g *grapher) reduce(mode int, y, x *driver.Tensor) *driver.Tensor {
	return g.add(driver.Operation{Kind: driver.Reduce, Mode: mode, X: x, Y: y})
}
func (g *grapher) reshape(y, x *driver.Tensor) *driver.Tensor {
	return g.add(driver.Operation{Kind: driver.Reshape, X: x, Y: y})
}

// seen replaces scores of keys behind their query's place by -inf.
func (g *grapher) seen(x *driver.Tensor) *driver.Tensor {
	if !g.h.c.Attr.Causal {
		return x
	}
	index := func(axis int64) *driver.Tensor {
		return g.add(driver.Operation{Kind: driver.Pointwise, Mode: driver.Index, Axis: axis, X: x, Y: g.scores(driver.TensorI32)})
	}
	row, column := index(2), index(3)
	up := g.add(driver.Operation{Kind: driver.Pointwise, Mode: driver.NotLess, Compute: driver.TensorBool, X: row, B: column, Y: g.scores(driver.TensorBool)})
	return g.add(driver.Operation{Kind: driver.Pointwise, Mode: driver.Select, X: x, B: g.number(float32(math.Inf(-1))), T: up, Y: g.scores(driver.TensorF32)})
}

// graph of the forward pass. Outside: q, k, v, o, lse.
func (h heads) graph() *driver.DNNGraph {
	g := h.grapher(slice{h.b, h.keys})
	query, key := h.steps()
	q, k, v := g.rows(g.n, query/h.d, h.t), g.turned(g.rows(g.k, key/h.d, h.s)), g.rows(g.k, key/h.d, h.s)
	o, lse := g.queries(), g.lines(h.heads)
	s := g.matmul(g.scores(driver.TensorF32), q, k)
	s = g.seen(g.pointwise(driver.Multiply, g.scores(driver.TensorF32), s, g.number(float32(h.c.Attr.Scale))))
	top := g.reduce(driver.ReduceGreatest, g.sums(), s)
	e := g.pointwise(driver.Exponential, g.scores(driver.TensorF32), g.pointwise(driver.Subtract, g.scores(driver.TensorF32), s, top), nil)
	sum := g.reduce(driver.ReduceSum, g.sums(), e)
	g.pointwise(driver.Add, lse, top, g.pointwise(driver.Logarithm, g.sums(), sum, nil))
	g.matmul(o, g.pointwise(driver.Divide, g.scores(g.element), e, sum), v)
	return &g.graph
}

// gradGraph is of the backward pass of a slice. Outside: q, k, v, o, lse, do, sums of
// o·do, dq, dk, dv.
func (h heads) gradGraph(s slice) *driver.DNNGraph {
	g := h.grapher(s)
	q, k, v, o, lse, do := g.queries(), g.turned(g.keys()), g.turned(g.keys()), g.queries(), g.lines(h.heads), g.queries()
	inner, dq, dk, dv := g.lines(g.n), g.queries(), g.keys(), g.keys()
	f32 := func() *driver.Tensor { return g.scores(driver.TensorF32) }

	matmuls := g.pointwise(driver.Multiply, g.virtual(driver.TensorF32, q.Shape), do, o)
	g.pointwise(driver.Multiply, inner, g.reduce(driver.ReduceSum, g.sums(), matmuls), g.number(1))

	scale := g.number(float32(h.c.Attr.Scale))
	x := g.pointwise(driver.Multiply, f32(), g.matmul(f32(), q, k), scale)
	p := g.pointwise(driver.Exponential, f32(), g.seen(g.pointwise(driver.Subtract, f32(), x, lse)), nil)
	g.shared(dv, g.across(p), do)

	ds := g.pointwise(driver.Subtract, f32(), g.matmul(f32(), do, v), inner)
	ds = g.pointwise(driver.Multiply, f32(), g.pointwise(driver.Multiply, f32(), ds, p), scale)
	g.shared(dk, g.across(ds), q)

	upright := g.virtual(driver.TensorF32, [4]int64{g.b, g.k, h.s, h.d})
	upright.Strides = [4]int64{k.Strides[0], k.Strides[1], k.Strides[3], k.Strides[2]}
	g.matmul(dq, ds, g.reshape(upright, k))
	return &g.graph
}

// across exchanges queries and keys of scores, which become elements.
func (g *grapher) across(x *driver.Tensor) *driver.Tensor {
	y := g.scores(g.element)
	return g.reshape(g.turned(y), x)
}

// shared is y = a·b, summed over the heads that share a key head.
func (g *grapher) shared(y, a, b *driver.Tensor) {
	if g.n == g.k {
		g.matmul(y, a, b)
		return
	}
	all := g.virtual(g.element, [4]int64{g.b, g.n, g.h.s, g.h.d})
	g.reduce(driver.ReduceSum, y, g.matmul(all, a, b))
}
