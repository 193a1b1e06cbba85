package graph

import (
	"slices"

	"spillway/op"
	"spillway/shape"
)

// Ops on tensors of any shape, as PyTorch has them. An axis may be negative: -1 is the last dimension.

// fromLast counts an axis of x from the last dimension; ok is false, and the mistake kept, where x has
// no such axis.
func (b *Builder) fromLast(x Value, axis int) (int64, bool) {
	rank := len(b.TypeOf(x).Shape)
	if b.err != nil {
		return 0, false
	}
	if axis < -rank || axis >= rank {
		b.Fail("%v has no axis %d", b.TypeOf(x), axis)
		return 0, false
	}
	if axis < 0 {
		return int64(-1 - axis), true
	}
	return int64(rank - 1 - axis), true
}

// Reshape gives the same elements another shape; one dimension may be -1.
func (b *Builder) Reshape(x Value, dims ...int64) Value {
	s := shape.Shape(slices.Clone(dims))
	if i := slices.Index(s, -1); i >= 0 {
		s[i] = 1
		if n := s.Elements(); n > 0 {
			s[i] = b.TypeOf(x).Shape.Elements() / n
		}
	}
	if b.err == nil && s.Equal(b.TypeOf(x).Shape) {
		return x
	}
	return b.Apply(op.Reshape, op.Attr{Shape: s}, x)[0]
}

// Flatten makes one dimension of those from axis start to end.
func (b *Builder) Flatten(x Value, start, end int) Value {
	first, ok := b.fromLast(x, start)
	last, also := b.fromLast(x, end)
	s := b.TypeOf(x).Shape
	if !ok || !also || first < last {
		b.Fail("flattening axes %d to %d of %v", start, end, b.TypeOf(x))
		return 0
	}
	from, to := int64(len(s))-1-first, int64(len(s))-last
	return b.Reshape(x, slices.Concat(s[:from], shape.Shape{s[from:to].Elements()}, s[to:])...)
}

// Permute puts the dimensions into another order.
func (b *Builder) Permute(x Value, axes ...int64) Value {
	return b.Apply(op.Permute, op.Attr{Axes: slices.Clone(axes)}, x)[0]
}

// Transpose exchanges two dimensions.
func (b *Builder) Transpose(x Value, i, j int) Value {
	first, ok := b.fromLast(x, i)
	second, also := b.fromLast(x, j)
	if !ok || !also {
		return 0
	}
	axes := make([]int64, len(b.TypeOf(x).Shape))
	for k := range axes {
		axes[k] = int64(k)
	}
	last := int64(len(axes)) - 1
	axes[last-first], axes[last-second] = last-second, last-first
	return b.Permute(x, axes...)
}

// Slice takes elements from start to before end along an axis, each step; negative ones count from
// behind.
func (b *Builder) Slice(x Value, axis int, start, end, step int64) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	if start < 0 {
		start += n
	}
	if end < 0 {
		end += n
	}
	step = max(step, 1)
	return b.Apply(op.Slice, op.Attr{Axis: at, Start: start, Step: step, Length: (end - start + step - 1) / step}, x)[0]
}

// Pad puts zeros before and behind along an axis.
func (b *Builder) Pad(x Value, axis int, before, behind int64) Value {
	at, ok := b.fromLast(x, axis)
	if !ok || before == 0 && behind == 0 {
		return x
	}
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	return b.Apply(op.Pad, op.Attr{Axis: at, Start: before, Length: before + n + behind}, x)[0]
}

// PadMode is what Padded puts around a tensor.
type PadMode string

// The ways to pad, by PyTorch's names. Zeros may be longer than the tensor; the others may not, and a reflection, which leaves
// out the edge itself, is shorter.
const (
	PadZeros     PadMode = "zeros"
	PadReflect   PadMode = "reflect"
	PadReplicate PadMode = "replicate"
	PadCircular  PadMode = "circular"
)

// Padded puts numbers before and behind x along an axis, as the mode says.
func (b *Builder) Padded(mode PadMode, x Value, axis int, before, behind int64) Value {
	if mode == "" || mode == PadZeros || before == 0 && behind == 0 {
		return b.Pad(x, axis, before, behind)
	}
	at, ok := b.fromLast(x, axis)
	if !ok || b.err != nil {
		return x
	}
	s := slices.Clone(b.TypeOf(x).Shape)
	axis = len(s) - 1 - int(at)
	n := s[axis]
	most := map[PadMode]int64{PadReflect: n - 1, PadReplicate: max(before, behind), PadCircular: n}
	if limit, known := most[mode]; !known || before < 0 || behind < 0 || max(before, behind) > limit || n < 1 {
		b.Fail("padding %s of %d before and %d behind %d places; it is %s, %s, %s or %s, and within the tensor", mode, before, behind, n, PadZeros, PadReflect, PadReplicate, PadCircular)
		return x
	}
	part := func(first, count int64) []Value { // places of x
		if count == 0 {
			return nil
		}
		return []Value{b.Slice(x, axis, first, first+count, 1)}
	}
	repeated := func(first, count int64) []Value { // one place of x, so many times
		if count == 0 {
			return nil
		}
		s[axis] = count
		return []Value{b.Expand(b.Slice(x, axis, first, first+1, 1), s...)}
	}
	var front, back []Value
	switch mode {
	case PadCircular:
		front, back = part(n-before, before), part(0, behind)
	case PadReplicate:
		front, back = repeated(0, before), repeated(n-1, behind)
	default:
		for i := before; i > 0; i-- {
			front = append(front, part(i, 1)...)
		}
		for i := range behind {
			back = append(back, part(n-2-i, 1)...)
		}
	}
	return b.ConcatAxis(axis, slices.Concat(front, []Value{x}, back)...)
}

// PadConstant puts a number before and behind x along an axis.
func (b *Builder) PadConstant(x Value, axis int, before, behind int64, number float64) Value {
	at, ok := b.fromLast(x, axis)
	if !ok || before == 0 && behind == 0 || b.err != nil {
		return x
	}
	t := b.TypeOf(x)
	axis = len(t.Shape) - 1 - int(at)
	parts := []Value{x}
	around := func(n int64, at int) {
		if n == 0 {
			return
		}
		s := slices.Clone(t.Shape)
		s[axis] = n
		parts = slices.Insert(parts, at, b.Expand(b.Number(x, number), s...))
	}
	around(before, 0)
	around(behind, len(parts))
	return b.ConcatAxis(axis, parts...)
}

// Expand repeats dimensions of 1, and x as a whole, to a shape.
func (b *Builder) Expand(x Value, dims ...int64) Value {
	if b.err == nil && b.TypeOf(x).Shape.Equal(dims) {
		return x
	}
	return b.Apply(op.Expand, op.Attr{Shape: slices.Clone(dims)}, x)[0]
}

// SplitAxis cuts along an axis into parts of the given sizes.
func (b *Builder) SplitAxis(x Value, axis int, sizes ...int64) []Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return make([]Value, len(sizes))
	}
	return b.Apply(op.Split, op.Attr{Axis: at, Sizes: sizes}, x)
}

// ConcatAxis joins along an axis.
func (b *Builder) ConcatAxis(axis int, xs ...Value) Value {
	if len(xs) == 0 {
		b.Fail("nothing is joined")
		return 0
	}
	at, ok := b.fromLast(xs[0], axis)
	if !ok {
		return 0
	}
	return b.Apply(op.Concat, op.Attr{Axis: at}, xs...)[0]
}

// Stack joins along a new axis.
func (b *Builder) Stack(axis int, xs ...Value) Value {
	parts := make([]Value, len(xs))
	for i, x := range xs {
		s := b.TypeOf(x).Shape
		at := axis
		if at < 0 {
			at += len(s) + 1
		}
		if at < 0 || at > len(s) {
			b.Fail("%v has no place for an axis %d", b.TypeOf(x), axis)
			return 0
		}
		parts[i] = b.Reshape(x, slices.Insert(slices.Clone(s), at, 1)...)
	}
	return b.ConcatAxis(axis, parts...)
}

// Gather takes x[.. ids[.. i ..] ..] along an axis; ids have the shape of x but for that axis.
func (b *Builder) Gather(x Value, axis int, ids Value) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	return b.Apply(op.Gather, op.Attr{Axis: at}, x, ids)[0]
}

// IndexSelect takes the parts of x along an axis that ids [N] name.
func (b *Builder) IndexSelect(x Value, axis int, ids Value) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	s, n := b.TypeOf(x).Shape, b.TypeOf(ids).Shape.Elements()
	first := int(int64(len(s)) - 1 - at)
	front := x
	if first > 0 {
		front = b.Transpose(x, 0, first)
	}
	t := slices.Clone(b.TypeOf(front).Shape)
	if b.err != nil {
		return 0
	}
	t[0] = n
	rows := b.Embedding(b.Reshape(ids, n), b.Reshape(front, s[first], -1))
	if out := b.Reshape(rows, t...); first == 0 {
		return out
	} else {
		return b.Transpose(out, 0, first)
	}
}

// Binary is f(x, y) with shapes broadcast.
func (b *Builder) Binary(f op.Func2, x, y Value) Value {
	return b.Apply(op.Binary, op.Attr{Func2: f}, x, y)[0]
}

// Sub, Div, Pow, Maximum, Minimum, Plus and Times broadcast.
func (b *Builder) Sub(x, y Value) Value     { return b.Binary(op.Minus, x, y) }
func (b *Builder) Div(x, y Value) Value     { return b.Binary(op.Divide, x, y) }
func (b *Builder) Pow(x, y Value) Value     { return b.Binary(op.Pow, x, y) }
func (b *Builder) Maximum(x, y Value) Value { return b.Binary(op.Maximum, x, y) }
func (b *Builder) Minimum(x, y Value) Value { return b.Binary(op.Minimum, x, y) }
func (b *Builder) Plus(x, y Value) Value    { return b.Binary(op.Plus, x, y) }
func (b *Builder) Times(x, y Value) Value   { return b.Binary(op.Times, x, y) }

// Compare is 1 where x and y compare as f says, else 0. No gradient passes through it.
func (b *Builder) Compare(f op.Func2, x, y Value) Value {
	return b.Apply(op.Compare, op.Attr{Func2: f}, x, y)[0]
}

// Where is x where the condition is not zero, else y.
func (b *Builder) Where(condition, x, y Value) Value {
	return b.Plus(b.Binary(op.If, condition, x), b.Binary(op.Unless, condition, y))
}

// Map applies a function that has numbers, see op.Func.
func (b *Builder) Map(f op.Func, alpha, beta float64, x Value) Value {
	return b.Apply(op.Unary, op.Attr{Func: f, Alpha: alpha, Beta: beta}, x)[0]
}

// Clamp bounds x.
func (b *Builder) Clamp(x Value, low, high float64) Value { return b.Map(op.Clamp, low, high, x) }

// Power is x to a constant power.
func (b *Builder) Power(x Value, exponent float64) Value { return b.Map(op.Power, exponent, 0, x) }

// PlusConstant adds a constant.
func (b *Builder) PlusConstant(x Value, c float64) Value {
	return b.Plus(x, b.Number(x, c))
}

// Reduce makes one number of all along some axes, of all axes where none are named; then it is [1].
func (b *Builder) Reduce(r op.Reduction, x Value, keep bool, axes ...int) Value {
	rank := len(b.TypeOf(x).Shape)
	reduced := make([]bool, rank)
	for _, axis := range axes {
		at, ok := b.fromLast(x, axis)
		if !ok {
			return 0
		}
		reduced[rank-1-int(at)] = true
	}
	for i := range reduced {
		reduced[i] = reduced[i] || len(axes) == 0
	}
	for end := rank; end > 0; {
		if !reduced[end-1] {
			end--
			continue
		}
		first := end - 1
		for first > 0 && reduced[first-1] {
			first--
		}
		x = b.Apply(op.Reduce, op.Attr{Reduction: r, Axis: int64(len(b.TypeOf(x).Shape) - end), Dims: int64(end - first), KeepDims: keep}, x)[0]
		end = first
	}
	return x
}

// Sum, Mean, Max and Min are over axes, which are left out of the shape; all where none are named.
func (b *Builder) Sum(x Value, axes ...int) Value  { return b.Reduce(op.ReduceSum, x, false, axes...) }
func (b *Builder) Mean(x Value, axes ...int) Value { return b.Reduce(op.ReduceMean, x, false, axes...) }
func (b *Builder) Max(x Value, axes ...int) Value  { return b.Reduce(op.ReduceMax, x, false, axes...) }
func (b *Builder) Min(x Value, axes ...int) Value  { return b.Reduce(op.ReduceMin, x, false, axes...) }

// ArgMax and ArgMin are where the largest and the smallest number along an axis is, as ids; of equal ones the first.
func (b *Builder) ArgMax(x Value, axis int) Value { return b.argMax(x, axis, false) }
func (b *Builder) ArgMin(x Value, axis int) Value { return b.argMax(x, axis, true) }

func (b *Builder) argMax(x Value, axis int, least bool) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	return b.Apply(op.ArgMax, op.Attr{Axis: at, Inverse: least}, x)[0]
}

// LogSumExp is log Σ e^x over axes.
func (b *Builder) LogSumExp(x Value, axes ...int) Value {
	return b.Reduce(op.ReduceLogSumExp, x, false, axes...)
}

// Softmax and LogSoftmax are along an axis.
func (b *Builder) Softmax(x Value, axis int) Value { return b.along(op.Softmax, op.Attr{}, x, axis) }
func (b *Builder) LogSoftmax(x Value, axis int) Value {
	return b.along(op.Softmax, op.Attr{Log: true}, x, axis)
}

// CumSum sums all up to each along an axis.
func (b *Builder) CumSum(x Value, axis int) Value { return b.along(op.CumSum, op.Attr{}, x, axis) }

func (b *Builder) along(kind op.Kind, a op.Attr, x Value, axis int) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	a.Axis = at
	return b.Apply(kind, a, x)[0]
}
