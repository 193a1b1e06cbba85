package graph

import (
	"math"
	"slices"

	"spillway/op"
	"spillway/shape"
)

// Ops on tensors of any shape, as PyTorch has them. An axis may be negative: -1 is the last dimension.

// fromLast counts an axis of x from the last dimension; ok is false, and the mistake kept, where x has
// no such axis.
func (b *Builder) fromLast(x Value, axis int) (int64, bool) {
	rank := len(b.TypeOf(x).Shape)
	if !b.isValue(x) {
		return 0, false
	}
	if axis < -rank || axis >= rank {
		b.Fail("%v has no axis %d; its axes are %d to %d, or from the last -1 to %d", b.TypeOf(x), axis, 0, rank-1, -rank)
		return 0, false
	}
	if axis < 0 {
		return int64(-1 - axis), true
	}
	return int64(rank - 1 - axis), true
}

// isValue is false, and the mistake kept, where x is no value.
func (b *Builder) isValue(x Value) bool {
	if x == 0 {
		b.Fail("an operand is no value: what a call that failed gives, a param that is nil, or a result that is not there")
	}
	return b.err == nil
}

// Reshape gives the same elements another shape; one dimension may be -1.
func (b *Builder) Reshape(x Value, dims ...int64) Value {
	s := shape.Shape(slices.Clone(dims))
	if i := slices.Index(s, -1); i >= 0 && b.err == nil {
		s[i] = 1
		n := b.TypeOf(x).Shape.Elements()
		if slices.Min(s) < 1 || s.Check() != nil || n%s.Elements() != 0 {
			b.Fail("%s: the %d elements of %v as %v; one dimension may be -1, and those given must be positive and divide the elements", op.Reshape, n, b.TypeOf(x), shape.Shape(dims))
			return 0
		}
		s[i] = n / s.Elements()
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
		b.Fail("flatten: axes %d to %d of %v; the second must not be before the first", start, end, b.TypeOf(x))
		return 0
	}
	from, to := int64(len(s))-1-first, int64(len(s))-last
	return b.Reshape(x, slices.Concat(s[:from], shape.Shape{s[from:to].Elements()}, s[to:])...)
}

// Permute puts the dimensions into another order.
func (b *Builder) Permute(x Value, axes ...int64) Value {
	order, rank := slices.Clone(axes), int64(len(b.TypeOf(x).Shape))
	for i, axis := range order {
		if axis < 0 {
			order[i] += rank
		}
	}
	return b.Apply(op.Permute, op.Attr{Axes: order}, x)[0]
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

// Slice takes elements from start to before end along an axis, each step: Python's x[start:end:step]. Negative ones count from
// behind, and those outside stop at the ends; math.MaxInt64 is "to the end". A slice without elements is refused.
func (b *Builder) Slice(x Value, axis int, start, end, step int64) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	within := func(i int64) int64 {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	first, last := within(start), within(end)
	if step < 1 || first >= last {
		b.Fail("%s: from %d to before %d by a step of %d along axis %d of %v, which has %d places; a step is at least 1, and a slice has elements", op.Slice, start, end, step, axis, b.TypeOf(x), n)
		return 0
	}
	return b.Apply(op.Slice, op.Attr{Axis: at, Start: first, Step: step, Length: (last-first-1)/step + 1}, x)[0]
}

// Pad puts zeros before and behind along an axis; less than zero of them takes places away, as in PyTorch.
func (b *Builder) Pad(x Value, axis int, before, behind int64) Value {
	x, before, behind = b.cropped(x, axis, before, behind)
	at, ok := b.fromLast(x, axis)
	if !ok || before == 0 && behind == 0 {
		return x
	}
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	return b.Apply(op.Pad, op.Attr{Axis: at, Start: before, Length: before + n + behind}, x)[0]
}

// cropped takes away what a padding of less than zero does, and gives the padding that is left.
func (b *Builder) cropped(x Value, axis int, before, behind int64) (Value, int64, int64) {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0, 0, 0
	}
	_, n, _ := b.TypeOf(x).Shape.Around(at, 1)
	first, last := max(-before, 0), n-max(-behind, 0)
	if most := int64(math.MaxInt64) / 4; max(before, behind) > most || min(before, behind) < -most || first >= last {
		b.Fail("%s: %d before and %d behind axis %d of %v, which has %d places; some must be left, and fewer than %d", op.Pad, before, behind, axis, b.TypeOf(x), n, most)
		return 0, 0, 0
	}
	if first > 0 || last < n {
		x = b.Slice(x, axis, first, last, 1)
	}
	return x, max(before, 0), max(behind, 0)
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
		b.Fail("%s: %q of %d before and %d behind %d places; it is %s, %s, %s or %s, and within the tensor; Slice takes places away", op.Pad, mode, before, behind, n, PadZeros, PadReflect, PadReplicate, PadCircular)
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

// PadConstant puts a number before and behind x along an axis; less than zero of them takes places away.
func (b *Builder) PadConstant(x Value, axis int, before, behind int64, number float64) Value {
	x, before, behind = b.cropped(x, axis, before, behind)
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

// Expand repeats dimensions of 1, and x as a whole, to a shape. A dimension of -1 stays as it is.
func (b *Builder) Expand(x Value, dims ...int64) Value {
	s, to := b.TypeOf(x).Shape, slices.Clone(dims)
	for i := range to {
		if own := i - len(to) + len(s); to[i] == -1 && own >= 0 {
			to[i] = s[own]
		}
	}
	if b.err == nil && s.Equal(to) {
		return x
	}
	return b.Apply(op.Expand, op.Attr{Shape: to}, x)[0]
}

// SplitAxis cuts along an axis into parts of the given sizes.
func (b *Builder) SplitAxis(x Value, axis int, sizes ...int64) []Value {
	if at, ok := b.fromLast(x, axis); ok {
		if parts := b.Apply(op.Split, op.Attr{Axis: at, Sizes: sizes}, x); b.err == nil {
			return parts
		}
	}
	return make([]Value, len(sizes)) // as many as model code counts with
}

// ConcatAxis joins along an axis.
func (b *Builder) ConcatAxis(axis int, xs ...Value) Value {
	if len(xs) == 0 {
		b.Fail("%s: joins 0 tensors; it takes 1 or more", op.Concat)
		return 0
	}
	at, ok := b.fromLast(xs[0], axis)
	if !ok {
		return 0
	}
	xs = slices.Clone(xs)
	for i := range xs { // the first is f32 then, where they differ
		xs[0], xs[i] = b.promoted(xs[0], xs[i])
	}
	for i := range xs {
		_, xs[i] = b.promoted(xs[0], xs[i])
	}
	return b.Apply(op.Concat, op.Attr{Axis: at}, xs...)[0]
}

// Stack joins along a new axis.
func (b *Builder) Stack(axis int, xs ...Value) Value {
	if b.err != nil {
		return 0
	}
	parts := make([]Value, len(xs))
	for i, x := range xs {
		s := b.TypeOf(x).Shape
		at := axis
		if at < 0 {
			at += len(s) + 1
		}
		if at < 0 || at > len(s) {
			b.Fail("stack: %v has no place for an axis %d; a new one is at 0 to %d, or from the last -1 to %d", b.TypeOf(x), axis, len(s), -len(s)-1)
			return 0
		}
		parts[i] = b.Reshape(x, slices.Insert(slices.Clone(s), at, 1)...)
	}
	return b.ConcatAxis(axis, parts...)
}

// Gather takes x[.. ids[.. i ..] ..] along an axis; the other axes of ids are as long as those of x, or shorter, as in PyTorch.
func (b *Builder) Gather(x Value, axis int, ids Value) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	s, t := b.TypeOf(x).Shape, b.TypeOf(ids).Shape
	for i := range t {
		if len(t) == len(s) && int64(i) != int64(len(s))-1-at && t[i] < s[i] && b.err == nil {
			x = b.Slice(x, i, 0, t[i], 1)
		}
	}
	return b.Apply(op.Gather, op.Attr{Axis: at}, x, ids)[0]
}

// IndexSelect takes the parts of x along an axis that ids [N] name.
func (b *Builder) IndexSelect(x Value, axis int, ids Value) Value {
	at, ok := b.fromLast(x, axis)
	if !ok {
		return 0
	}
	if t := b.TypeOf(ids); len(t.Shape) > 1 {
		b.Fail("index_select: ids are %v with %d dimensions, want 1; Embedding takes ids of any shape, Gather one for each place", t, len(t.Shape))
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
	t := b.TypeOf(y).DType
	x, y = b.promoted(x, y)
	out := b.Apply(op.Binary, op.Attr{Func2: f}, x, y)[0]
	if f == op.If || f == op.Unless { // x is a condition
		return b.Cast(out, t)
	}
	return out
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
	x, y = b.promoted(x, y)
	return b.Apply(op.Compare, op.Attr{Func2: f}, x, y)[0]
}

// Where is x where the condition is not zero, else y.
func (b *Builder) Where(condition, x, y Value) Value {
	return b.Plus(b.Binary(op.If, condition, x), b.Binary(op.Unless, condition, y))
}

// Map applies a function that has numbers, see op.Func.
func (b *Builder) Map(f op.Func, alpha, beta float64, x Value) Value {
	if f == op.Clamp { // plans are JSON, which has no infinity; in a tensor's type these bounds are infinite
		alpha, beta = max(alpha, -math.MaxFloat64), min(beta, math.MaxFloat64)
	}
	return b.Apply(op.Unary, op.Attr{Func: f, Alpha: alpha, Beta: beta}, x)[0]
}

// Clamp bounds x; infinite bounds are none.
func (b *Builder) Clamp(x Value, low, high float64) Value {
	if math.IsNaN(low) || math.IsNaN(high) {
		b.Fail("clamp: from %v to %v; bounds are numbers, or infinite", low, high)
		return 0
	}
	return b.Map(op.Clamp, low, high, x)
}

// Power is x to a constant power.
func (b *Builder) Power(x Value, exponent float64) Value { return b.Map(op.Power, exponent, 0, x) }

// PlusConstant adds a constant.
func (b *Builder) PlusConstant(x Value, c float64) Value {
	return b.Plus(x, b.Number(x, c))
}

// Follow has a running statistic, a param with a momentum, move towards x by that share of the way with each update, and gives what it will be. No gradient passes.
// nn.Param.Follow calls it.
func (b *Builder) Follow(statistic, x Value, momentum float64) Value {
	if _, twice := b.follows[statistic]; twice && b.err == nil {
		b.Fail("follow: a running statistic %v follows two values; one of them moves it", b.TypeOf(statistic))
	}
	x = b.Detach(b.Cast(x, b.TypeOf(statistic).DType))
	b.Apply(op.Follow, op.Attr{}, x, statistic)
	moved := b.Detach(b.Plus(statistic, b.Scale(b.Sub(x, statistic), momentum)))
	b.follows[statistic] = moved
	return moved
}

// Followed is what Follow gave for a statistic in this block; no value where it was not called.
func (b *Builder) Followed(statistic Value) Value { return b.follows[statistic] }

// Reduce makes one number of all along some axes, of all axes where none are named; then it is [1].
func (b *Builder) Reduce(r op.Reduction, x Value, keep bool, axes ...int) Value {
	rank := len(b.TypeOf(x).Shape)
	if !b.isValue(x) {
		return 0
	}
	reduced := make([]bool, rank)
	for _, axis := range axes {
		at, ok := b.fromLast(x, axis)
		if !ok {
			return 0
		}
		if i := rank - 1 - int(at); reduced[i] {
			b.Fail("%s: axis %d of %v appears twice in %v; name each once", op.Reduce, i, b.TypeOf(x), axes)
			return 0
		} else {
			reduced[i] = true
		}
	}
	for i := range reduced {
		reduced[i] = reduced[i] || len(axes) == 0
	}
	if r == op.ReduceMax || r == op.ReduceMin {
		return b.extreme(r, x, keep, reduced)
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

// extreme is the largest or smallest number over axes. They are brought together first, so that equal ones have equal shares of the gradient.
func (b *Builder) extreme(r op.Reduction, x Value, keep bool, reduced []bool) Value {
	var front, back []int64
	s := slices.Clone(b.TypeOf(x).Shape)
	for i, is := range reduced {
		if is {
			back, s[i] = append(back, int64(i)), 1
		} else {
			front = append(front, int64(i))
		}
	}
	if len(back) == 0 {
		return x
	}
	axis := int64(len(reduced)) - 1 - back[len(back)-1]
	if apart := back[len(back)-1]-back[0] >= int64(len(back)); apart {
		x, axis = b.Permute(x, slices.Concat(front, back)...), 0
	}
	y := b.Apply(op.Reduce, op.Attr{Reduction: r, Axis: axis, Dims: int64(len(back)), KeepDims: keep}, x)[0]
	if keep && b.err == nil {
		return b.Reshape(y, s...)
	}
	return y
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
