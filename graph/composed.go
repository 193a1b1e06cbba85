package graph

import (
	"math"
	"slices"
	"strconv"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// What PyTorch has under one name and here is made of other ops.

// Number is a constant [1] of the type that x has, to compare and compute with.
func (b *Builder) Number(x Value, c float64) Value {
	if t := b.TypeOf(x); b.err == nil && t.DType == dtype.I32 {
		b.Fail("number: %v for a tensor of %v; cast ids to f32 first", c, t)
		return 0
	}
	return b.Cast(b.Floats("constant "+strconv.FormatFloat(c, 'g', -1, 64), []float32{float32(c)}), b.TypeOf(x).DType)
}

// MaskedFill is x, and a number where the condition is not zero.
func (b *Builder) MaskedFill(x, condition Value, number float64) Value {
	return b.Where(condition, b.Number(x, number), x)
}

// ScatterAdd adds the elements of x at the places of length n along an axis that ids, of the shape of x, name: PyTorch's
// scatter_add to zeros. Elements of one place are added in order, so that the sum has the same bits every time.
func (b *Builder) ScatterAdd(x Value, axis int, ids Value, n int64) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	return b.Apply(op.GatherGrad, op.Attr{Axis: at, Length: n}, ids, x)[0]
}

// IndexAdd is ScatterAdd with one id for each part of x along the axis: PyTorch's index_add to zeros. ids [N] are those of all samples.
func (b *Builder) IndexAdd(x Value, axis int, ids Value, n int64) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	s, t := b.TypeOf(x).Shape, b.TypeOf(ids)
	if _, n, _ := s.Around(at, 1); len(t.Shape) != 1 || t.Shape[0] != n {
		b.Fail("index_add: ids are %v, want one for each of the %d places along axis %d of %v", t, n, axis, b.TypeOf(x))
		return 0
	}
	column := slices.Repeat([]int64{1}, int(at)+1)
	column[0] = -1
	return b.ScatterAdd(x, axis, b.Expand(b.Reshape(ids, column...), s...), n)
}

// ScatterReduce is x with z scattered into it along an axis, where ids say, as PyTorch's scatter_reduce: sums, means, maxima (amax) or minima. ids and
// z have the shape of x but along the axis. With include the number of x takes part too (PyTorch's default); else it only stays where nothing goes. Equal
// extremes share the gradient; a number that does not take part has none of it, where PyTorch gives it a share if it happens to be as large.
func (b *Builder) ScatterReduce(r op.Reduction, x Value, axis int, ids, z Value, include bool) Value {
	at, ok := b.fromLast(x, axis)
	if !ok || !b.isValue(z) || !b.isValue(ids) {
		return 0
	}
	x, z = b.promoted(x, z)
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	scattered := func(v Value) Value { return b.Apply(op.GatherGrad, op.Attr{Axis: at, Length: n}, ids, v)[0] }
	count := func() Value { return scattered(b.Expand(b.Number(z, 1), b.TypeOf(z).Shape...)) }
	switch r {
	case op.ReduceSum, op.ReduceMean:
		sum := scattered(z)
		if r == op.ReduceMean {
			all := b.Cast(count(), dtype.F32)
			if include {
				return b.Cast(b.Div(b.Add(x, sum), b.PlusConstant(all, 1)), b.TypeOf(x).DType)
			}
			sum = b.Cast(b.Div(sum, b.Maximum(all, b.Number(all, 1))), b.TypeOf(x).DType)
		}
		if include {
			return b.Add(x, sum)
		}
		return b.Where(count(), sum, x)
	case op.ReduceMax, op.ReduceMin:
		if !include {
			x = b.MaskedFill(x, count(), math.Inf(map[op.Reduction]int{op.ReduceMax: -1, op.ReduceMin: 1}[r]))
		}
		return b.Apply(op.ScatterReduce, op.Attr{Reduction: r, Axis: at}, x, ids, z)[0]
	}
	b.Fail("scatter_reduce: by %v; it takes %v, %v, %v or %v", r, op.ReduceSum, op.ReduceMean, op.ReduceMax, op.ReduceMin)
	return 0
}

// Roll moves elements along an axis by so many places; those that leave at one end come back at the other.
func (b *Builder) Roll(x Value, axis int, by int64) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	if by = (by%n + n) % n; by == 0 {
		return x
	}
	return b.ConcatAxis(axis, b.Slice(x, axis, n-by, n, 1), b.Slice(x, axis, 0, n-by, 1))
}

// Flip turns the order along an axis.
func (b *Builder) Flip(x Value, axis int) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(n) - 1 - int32(i)
	}
	return b.IndexSelect(x, axis, b.Integers("backward", order))
}

// Chunk cuts along an axis into so many equal parts. Where they do not divide it, parts are as large as makes at most so many, and the last
// is what is left, as in PyTorch: 5 places in 4 parts are 2, 2 and 1.
func (b *Builder) Chunk(x Value, axis int, parts int64) []Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return make([]Value, min(max(parts, 1), 1<<10))
	}
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	if parts < 1 {
		b.Fail("chunk: %d parts of axis %d of %v, which has %d places; it takes 1 or more", parts, axis, b.TypeOf(x), n)
		return make([]Value, 1)
	}
	size := (n-1)/parts + 1
	sizes := slices.Repeat([]int64{size}, int(n/size))
	if rest := n % size; rest > 0 {
		sizes = append(sizes, rest)
	}
	return b.SplitAxis(x, axis, sizes...)
}

// OneHot is 1 at the class of each of ids [..] and else 0: [.. classes], in the program's element type. An id that is no class is an
// error, as for Embedding.
func (b *Builder) OneHot(ids Value, classes int64) Value {
	t := b.TypeOf(ids)
	if b.err != nil || classes < 1 || t.DType != dtype.I32 {
		b.Fail("one_hot: %d classes of %v; it takes 1 or more of ids in i32", classes, t)
		return 0
	}
	each := append(slices.Clone(t.Shape), 1)
	one := b.Cast(b.Floats("one", []float32{1}), b.DType)
	return b.ScatterAdd(b.Expand(one, each...), -1, b.Reshape(ids, each...), classes)
}

// fewLargest is up to how many TopK searches for one by one.
const fewLargest = 16

// TopK gives the k largest elements along an axis, the largest first, and where they are. Of equal ones the first comes first. A k of a
// few, as of routers of experts and beams, is so many searches for the largest, a larger one sorts.
func (b *Builder) TopK(x Value, axis int, k int64) (values, ids Value) {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0, 0
	}
	s := slices.Clone(b.TypeOf(x).Shape)
	dim := len(s) - 1 - int(at)
	if k < 1 || k > s[dim] {
		b.Fail("topk: the %d largest along axis %d of %v, which has %d; take 1 to %d", k, axis, b.TypeOf(x), s[dim], s[dim])
		return 0, 0
	}
	if k > fewLargest {
		ids = b.Slice(b.ArgSort(x, dim, true), dim, 0, k, 1)
		return b.Gather(x, dim, ids), ids
	}
	order := make([]float32, s[dim])
	for i := range order {
		order[i] = float32(i)
	}
	places := b.Floats("places", order, append([]int64{s[dim]}, slices.Repeat([]int64{1}, int(at))...)...)
	s[dim] = 1
	left, list := b.Cast(b.Detach(x), dtype.F32), make([]Value, k)
	left = b.Maximum(left, b.Number(left, -math.MaxFloat32)) // so that what is taken is less than any other
	for i := range list {
		list[i] = b.Reshape(b.ArgMax(left, dim), s...)
		if i+1 < len(list) {
			left = b.MaskedFill(left, b.Compare(op.Equal, places, b.Cast(list[i], dtype.F32)), math.Inf(-1))
		}
	}
	ids = b.ConcatAxis(dim, list...)
	return b.Gather(x, dim, ids), ids
}

// Sort orders the numbers along an axis, the smallest first or else the largest, and says where they were; equal ones stay in order (PyTorch's sort with stable=True).
func (b *Builder) Sort(x Value, axis int, descending bool) (values, ids Value) {
	ids = b.ArgSort(x, axis, descending)
	return b.Gather(x, axis, ids), ids
}

// ArgSort is where the numbers are that Sort gives.
func (b *Builder) ArgSort(x Value, axis int, descending bool) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	a := op.Attr{Inverse: descending}
	if at == 0 {
		return b.Apply(op.ArgSort, a, x)[0]
	}
	return b.Transpose(b.Apply(op.ArgSort, a, b.Transpose(x, axis, -1))[0], axis, -1)
}

// CumProd multiplies all up to each along an axis. It doubles how many are multiplied until it is all of them, so that gradients are right where factors are zero too; what
// the backward pass needs is as many tensors as the axis has bits.
func (b *Builder) CumProd(x Value, axis int) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	for by := int64(1); by < n; by *= 2 {
		x = b.Mul(x, b.PadConstant(b.Slice(x, axis, 0, n-by, 1), axis, by, 0, 1))
	}
	return x
}

// Var is the variance over axes, which are left out of the shape, divided by the elements less the correction: 1 as PyTorch's default, 0
// for that of norms. All axes where none are named.
func (b *Builder) Var(x Value, correction float64, axes ...int) Value {
	off := b.Sub(x, b.Reduce(op.ReduceMean, x, true, axes...))
	mean := b.Mean(b.Unary(op.Square, off), axes...)
	if b.err != nil {
		return 0
	}
	n := float64(b.TypeOf(x).Shape.Elements() / max(b.TypeOf(mean).Shape.Elements(), 1))
	if !(n > correction) {
		b.Fail("var: %v numbers with a correction of %v, which must be less", n, correction)
		return 0
	}
	return b.Scale(mean, n/(n-correction))
}

// Std is the square root of Var.
func (b *Builder) Std(x Value, correction float64, axes ...int) Value {
	return b.root(b.Var(x, correction, axes...))
}

// Norm is the length √Σx² over axes, which are left out of the shape; the gradient of one of 0 is 0.
func (b *Builder) Norm(x Value, axes ...int) Value {
	return b.root(b.Sum(b.Unary(op.Square, x), axes...))
}

// root is √x, with a gradient of 0 at 0, where that of the root is infinite.
func (b *Builder) root(x Value) Value {
	zero := b.Compare(op.Equal, x, b.Number(x, 0))
	return b.Sub(b.Unary(op.Sqrt, b.Plus(x, zero)), zero)
}

// Normalize divides by the length along an axis, or by eps where that is more: PyTorch's F.normalize, whose eps is 1e-12.
func (b *Builder) Normalize(x Value, axis int, eps float64) Value {
	length := b.root(b.Reduce(op.ReduceSum, b.Unary(op.Square, x), true, axis))
	return b.Div(x, b.Maximum(length, b.Number(x, eps)))
}

// CosineSimilarity is the cosine of the angle between x and y along an axis, which is left out of the shape. Lengths are at least
// eps, 1e-8 in PyTorch. Shapes broadcast; the axis is that of both together.
func (b *Builder) CosineSimilarity(x, y Value, axis int, eps float64) Value {
	if s, t := b.TypeOf(x).Shape, b.TypeOf(y).Shape; b.err == nil && !s.Equal(t) {
		both, err := shape.Broadcast(s, t)
		if err != nil {
			b.Fail("cosine_similarity: %w", err)
			return 0
		}
		x, y = b.Expand(x, both...), b.Expand(y, both...)
	}
	return b.Sum(b.Times(b.Normalize(x, axis, eps), b.Normalize(y, axis, eps)), axis)
}
