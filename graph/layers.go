package graph

import (
	"math"

	"spillway/op"
)

// Ops of networks for images, sound and other things with places. Tensors are [B S.. C]: channels last.

// Conv is a convolution with w [O C/groups K..]; a bias of no value is left out.
func (b *Builder) Conv(s op.Spatial, x, w, bias Value) Value {
	b.noPooling(op.Conv, s)
	if bias == 0 {
		return b.Apply(op.Conv, op.Attr{Spatial: s}, x, w)[0]
	}
	return b.Apply(op.Conv, op.Attr{Spatial: s, Bias: true}, x, w, bias)[0]
}

// noPooling refuses settings of pooling, which convolutions do not read.
func (b *Builder) noPooling(kind op.Kind, s op.Spatial) {
	if len(s.Kernel) > 0 || s.Ceil || s.CountPadding || s.Adaptive {
		b.Fail("%s: has Kernel %v, Ceil %v, CountPadding %v and Adaptive %v, which only pooling reads; the weight says how large windows are", kind, s.Kernel, s.Ceil, s.CountPadding, s.Adaptive)
	}
}

// ConvTranspose is the transposed convolution with w [C O/groups K..], with so many places more at the
// end of each dimension (PyTorch's output_padding, which may be nil); a bias of no value is left out.
func (b *Builder) ConvTranspose(s op.Spatial, extra []int64, x, w, bias Value) Value {
	from, window := b.TypeOf(x).Shape, b.TypeOf(w).Shape
	if b.err != nil {
		return 0
	}
	if len(from) < 3 || len(window) != len(from) {
		b.Fail("%s: %v transposed convolved with %v: want [B S.. C] and [C O K..]", op.ConvInput, b.TypeOf(x), b.TypeOf(w))
		return 0
	}
	b.noPooling(op.ConvInput, s)
	if len(extra) != 0 && len(extra) != len(from)-2 {
		b.Fail("%s: %d numbers of output padding for %d spatial dimensions; give one for each", op.ConvInput, len(extra), len(from)-2)
	}
	number := func(list []int64, i int, none int64) int64 {
		if i < len(list) {
			return list[i]
		}
		return none
	}
	out := []int64{from[0]}
	for i := range len(from) - 2 {
		if more, stride := number(extra, i, 0), number(s.Stride, i, 1); more < 0 || more >= max(stride, 1) {
			b.Fail("%s: an output padding of %d with a stride of %d in spatial dimension %d; it is from 0 to less than the stride", op.ConvInput, more, stride, i)
		}
		out = append(out, (from[1+i]-1)*number(s.Stride, i, 1)-2*number(s.Padding, i, 0)+number(s.Dilation, i, 1)*(window[2+i]-1)+number(extra, i, 0)+1)
	}
	out = append(out, window[1]*max(s.Groups, 1))
	y := b.Apply(op.ConvInput, op.Attr{Spatial: s, Shape: out}, x, w)[0]
	if bias == 0 {
		return y
	}
	return b.Add(y, bias)
}

// MaxPool and AvgPool are over windows.
func (b *Builder) MaxPool(s op.Spatial, x Value) Value {
	if s.CountPadding {
		b.Fail("%s: CountPadding %v of a maximum, in which padding never counts; leave it out", op.Pool, s.CountPadding)
	}
	return b.pool(op.ReduceMax, s, x)
}
func (b *Builder) AvgPool(s op.Spatial, x Value) Value { return b.pool(op.ReduceMean, s, x) }

func (b *Builder) pool(r op.Reduction, s op.Spatial, x Value) Value {
	if s.Groups != 0 || s.Adaptive && (len(s.Stride)+len(s.Padding)+len(s.Dilation) > 0 || s.Ceil || s.CountPadding) {
		b.Fail("%s: has Groups %d, and adaptive (%v) Stride %v, Padding %v, Dilation %v, Ceil %v, CountPadding %v; pooling has no groups, and adaptive pooling finds its windows itself",
			op.Pool, s.Groups, s.Adaptive, s.Stride, s.Padding, s.Dilation, s.Ceil, s.CountPadding)
	}
	return b.Apply(op.Pool, op.Attr{Spatial: s, Reduction: r}, x)[0]
}

// GroupNorm normalizes groups of channels of each sample; with as many groups as channels it is an instance norm. Weight and bias may be no values.
func (b *Builder) GroupNorm(x Value, groups int64, w, bias Value, eps float64) Value {
	if c := b.TypeOf(x).Shape.Last(); groups < 1 || c%groups != 0 {
		b.Fail("%s: %d groups do not divide the %d channels of %v; take a divisor", op.GroupNorm, groups, c, b.TypeOf(x))
		return 0
	}
	return b.groupNorm(op.Attr{Eps: eps, Spatial: op.Spatial{Groups: groups}}, x, w, bias)
}

// groupNorm has statistics behind weight and bias. Where one of these is no value, it is ones or zeros.
func (b *Builder) groupNorm(a op.Attr, x, w, bias Value, running ...Value) Value {
	in := []Value{x}
	if a.Bias = w != 0 || bias != 0; a.Bias {
		in = append(in, b.orNumber(w, x, 1), b.orNumber(bias, x, 0))
	}
	return b.Apply(op.GroupNorm, a, append(in, running...)...)[0]
}

// orNumber is v, or a number for each of the last dimension of x where v is no value.
func (b *Builder) orNumber(v, x Value, number float64) Value {
	if v != 0 || b.err != nil {
		return v
	}
	return b.Expand(b.Number(x, number), b.TypeOf(x).Shape.Last())
}

// BatchNorm normalizes each channel over the whole batch; running statistics may be no values, both of them.
func (b *Builder) BatchNorm(x, w, bias, mean, variance Value, eps float64) Value {
	a := op.Attr{Eps: eps, WholeBatch: true}
	if mean == 0 && variance == 0 {
		return b.groupNorm(a, x, w, bias)
	}
	a.Running = true
	return b.groupNorm(a, x, w, bias, mean, variance)
}

// Interpolate resamples the spatial dimensions of x [B S.. C] to sizes; scales may be nil, else places
// are found by them.
func (b *Builder) Interpolate(r op.Resampling, corners bool, x Value, sizes []int64, scales []float64) Value {
	n := len(sizes)
	switch s := b.TypeOf(x).Shape; {
	case b.err != nil:
		return 0
	case n < 1 || len(s) != n+2:
		b.Fail("%s: %v has %d spatial dimensions, %d sizes are given; want [B S.. C] and a size for each of S", op.Resample, b.TypeOf(x), len(s)-2, n)
	case scales != nil && len(scales) != n:
		b.Fail("%s: %d scales of %d spatial dimensions; give one for each", op.Resample, len(scales), n)
	case corners && (r == op.Nearest || r == op.NearestExact):
		b.Fail("%s: corners are aligned (%v) by %v, which takes places as they are; use %v or %v", op.Resample, corners, r, op.Linear, op.Cubic)
	}
	for i, scale := range scales {
		if !(scale >= 0) || math.IsInf(scale, 0) {
			b.Fail("%s: a scale of %v in spatial dimension %d; it is above 0, or 0 for what the size of %d says", op.Resample, scale, i, sizes[min(i, n-1)])
		}
	}
	for i, size := range sizes {
		if b.err != nil {
			return 0
		}
		a := op.Attr{Resampling: r, AlignCorners: corners, Axis: int64(n - i), Length: size}
		if scales != nil {
			a.Scale = scales[i]
		}
		if b.TypeOf(x).Shape[1+i] == size && a.Scale == 0 {
			continue
		}
		x = b.Apply(op.Resample, a, x)[0]
	}
	return x
}
