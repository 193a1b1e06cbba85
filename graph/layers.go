package graph

import "spillway/op"

// Ops of networks for images, sound and other things with places. Tensors are [B S.. C]: channels last.

// Conv is a convolution with w [O C/groups K..]; a bias of no value is left out.
func (b *Builder) Conv(s op.Spatial, x, w, bias Value) Value {
	if bias == 0 {
		return b.Apply(op.Conv, op.Attr{Spatial: s}, x, w)[0]
	}
	return b.Apply(op.Conv, op.Attr{Spatial: s, Bias: true}, x, w, bias)[0]
}

// ConvTranspose is the transposed convolution with w [C O/groups K..], with so many places more at the
// end of each dimension (PyTorch's output_padding, which may be nil); a bias of no value is left out.
func (b *Builder) ConvTranspose(s op.Spatial, extra []int64, x, w, bias Value) Value {
	from, window := b.TypeOf(x).Shape, b.TypeOf(w).Shape
	if b.err != nil {
		return 0
	}
	if len(from) < 3 || len(window) != len(from) {
		b.Fail("%v transposed convolved with %v: want [B S.. C] and [C O K..]", b.TypeOf(x), b.TypeOf(w))
		return 0
	}
	number := func(list []int64, i int, none int64) int64 {
		if i < len(list) {
			return list[i]
		}
		return none
	}
	out := []int64{from[0]}
	for i := range len(from) - 2 {
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
	return b.Apply(op.Pool, op.Attr{Spatial: s, Reduction: op.ReduceMax}, x)[0]
}
func (b *Builder) AvgPool(s op.Spatial, x Value) Value {
	return b.Apply(op.Pool, op.Attr{Spatial: s, Reduction: op.ReduceMean}, x)[0]
}

// GroupNorm normalizes groups of channels of each sample; weight and bias may be no values.
func (b *Builder) GroupNorm(x Value, groups int64, w, bias Value, eps float64) Value {
	return b.groupNorm(op.Attr{Eps: eps, Spatial: op.Spatial{Groups: groups}}, x, w, bias)[0]
}

func (b *Builder) groupNorm(a op.Attr, x, w, bias Value) []Value {
	if w == 0 || bias == 0 {
		return b.Apply(op.GroupNorm, a, x)
	}
	a.Bias = true
	return b.Apply(op.GroupNorm, a, x, w, bias)
}

// BatchNorm normalizes each channel over the whole batch; running statistics may be no values.
func (b *Builder) BatchNorm(x, w, bias, mean, variance Value, eps float64) Value {
	a := op.Attr{Eps: eps, WholeBatch: true}
	if mean == 0 || variance == 0 {
		return b.groupNorm(a, x, w, bias)[0]
	}
	a.Running = true
	if w == 0 || bias == 0 {
		return b.Apply(op.GroupNorm, a, x, mean, variance)[0]
	}
	a.Bias = true
	return b.Apply(op.GroupNorm, a, x, w, bias, mean, variance)[0]
}

// Interpolate resamples the spatial dimensions of x [B S.. C] to sizes; scales may be nil, else places
// are found by them.
func (b *Builder) Interpolate(r op.Resampling, corners bool, x Value, sizes []int64, scales []float64) Value {
	n := len(sizes)
	if s := b.TypeOf(x).Shape; b.err == nil && len(s) != n+2 {
		b.Fail("%v has %d spatial dimensions, %d sizes are given", b.TypeOf(x), len(s)-2, n)
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
