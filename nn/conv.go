package nn

import (
	"cmp"
	"math"
	"slices"

	"spillway/graph"
	"spillway/op"
)

// Images, sound and video are [B S.. C] here: channels last, which is what computes fastest. Weights are
// as PyTorch has them. ChannelsLast brings a batch in PyTorch's order into this one.

// Conv is PyTorch's Conv1d, Conv2d or Conv3d, by the number of sizes of its windows.
type Conv struct {
	Weight *Param `hf:"weight"`        // [out in/groups K..]
	Bias   *Param `hf:"bias,optional"` // [out]
	op.Spatial
	PaddingMode graph.PadMode // what Padding puts around; "" is zeros
	ungrouped   bool          // NewConv was asked for 0 groups
	Precision
}

// NewConv1d, NewConv2d and NewConv3d start as PyTorch's, with windows of one size, stride 1 and no
// padding; change fields for others. Without bias, set Bias to nil.
func NewConv1d(in, out, kernel int64) *Conv { return NewConv(in, out, 1, kernel) }
func NewConv2d(in, out, kernel int64) *Conv { return NewConv(in, out, 1, kernel, kernel) }
func NewConv3d(in, out, kernel int64) *Conv { return NewConv(in, out, 1, kernel, kernel, kernel) }

// NewConv starts as PyTorch's: uniform within 1/√(channels of a group · window).
func NewConv(in, out, groups int64, kernel ...int64) *Conv {
	dims := append([]int64{out, in / max(groups, 1)}, kernel...)
	seen := int64(1)
	for _, n := range dims[1:] {
		seen *= n
	}
	init := Uniform(1 / math.Sqrt(float64(max(seen, 1))))
	return &Conv{Weight: NewParam(init, dims...), Bias: NewParam(init, out), Spatial: op.Spatial{Groups: groups}, ungrouped: groups == 0}
}

// Strided is the layer with a stride and a padding, the same in all dimensions.
func (c *Conv) Strided(stride, padding int64) *Conv {
	s := windows(len(c.Weight.Shape)-2, 0, stride, padding)
	c.Stride, c.Padding = s.Stride, s.Padding
	return c
}

// WithoutBias is the layer without its bias.
func (c *Conv) WithoutBias() *Conv {
	c.Bias = nil
	return c
}

// Forward maps [B S.. in] to [B S'.. out].
func (c *Conv) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return c.In(b, x, func(x graph.Value) graph.Value {
		s, dims := c.Spatial, len(c.Weight.Shape)-2
		if c.ungrouped && c.Groups == 0 {
			b.Fail("%s: 0 groups; take 1 for a convolution without groups", op.Conv)
			return 0
		}
		if c.PaddingMode != "" && c.PaddingMode != graph.PadZeros {
			if len(s.Padding) != dims {
				b.Fail("conv: %d numbers of padding by %q for %d spatial dimensions; give one for each", len(s.Padding), c.PaddingMode, dims)
				return 0
			}
			for i, n := range s.Padding {
				x = b.Padded(c.PaddingMode, x, 1+i, n, n)
			}
			s.Padding = nil
		}
		return b.Conv(s, x, c.Weight.Value(b), c.Bias.Value(b))
	})
}

// ConvTranspose is PyTorch's ConvTranspose1d, 2d or 3d.
type ConvTranspose struct {
	Weight *Param `hf:"weight"`        // [in out/groups K..]
	Bias   *Param `hf:"bias,optional"` // [out]
	op.Spatial
	OutputPadding []int64 // places more at the end of each dimension
	out           int64   // channels that NewConvTranspose was asked for
	ungrouped     bool    // and it was asked for 0 groups
	Precision
}

// NewConvTranspose starts as PyTorch's.
func NewConvTranspose(in, out, groups int64, kernel ...int64) *ConvTranspose {
	dims := append([]int64{in, out / max(groups, 1)}, kernel...)
	seen := int64(1)
	for _, n := range dims[1:] {
		seen *= n
	}
	init := Uniform(1 / math.Sqrt(float64(max(seen, 1))))
	return &ConvTranspose{Weight: NewParam(init, dims...), Bias: NewParam(init, out), Spatial: op.Spatial{Groups: groups}, out: out, ungrouped: groups == 0}
}

// Strided is the layer with a stride and a padding, the same in all dimensions.
func (c *ConvTranspose) Strided(stride, padding int64) *ConvTranspose {
	s := windows(len(c.Weight.Shape)-2, 0, stride, padding)
	c.Stride, c.Padding = s.Stride, s.Padding
	return c
}

// Forward maps [B S.. in] to [B S'.. out].
func (c *ConvTranspose) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return c.In(b, x, func(x graph.Value) graph.Value {
		if c.ungrouped && c.Groups == 0 {
			b.Fail("%s: 0 groups; take 1 for a convolution without groups", op.ConvInput)
			return 0
		}
		if groups := max(c.Groups, 1); c.out%groups != 0 {
			b.Fail("%s: %d channels in %d groups; take a divisor", op.ConvInput, c.out, groups)
			return 0
		}
		return b.ConvTranspose(c.Spatial, c.OutputPadding, x, c.Weight.Value(b), c.Bias.Value(b))
	})
}

// MaxPool and AvgPool take the largest or the mean of windows; a Stride of none is the window's size.
type (
	MaxPool struct{ op.Spatial }
	AvgPool struct {
		op.Spatial
		// IgnorePadding: padding does not count in means, as without PyTorch's count_include_pad.
		IgnorePadding bool
	}
)

// NewMaxPool1d to NewAvgPool3d are PyTorch's layers; a stride of 0 is the window's size.
func NewMaxPool1d(kernel, stride, padding int64) MaxPool {
	return MaxPool{windows(1, kernel, stride, padding)}
}
func NewMaxPool2d(kernel, stride, padding int64) MaxPool {
	return MaxPool{windows(2, kernel, stride, padding)}
}
func NewMaxPool3d(kernel, stride, padding int64) MaxPool {
	return MaxPool{windows(3, kernel, stride, padding)}
}
func NewAvgPool1d(kernel, stride, padding int64) AvgPool {
	return AvgPool{Spatial: windows(1, kernel, stride, padding)}
}
func NewAvgPool2d(kernel, stride, padding int64) AvgPool {
	return AvgPool{Spatial: windows(2, kernel, stride, padding)}
}
func NewAvgPool3d(kernel, stride, padding int64) AvgPool {
	return AvgPool{Spatial: windows(3, kernel, stride, padding)}
}

// windows are the same in all of so many dimensions.
func windows(dims int, kernel, stride, padding int64) (s op.Spatial) {
	for range dims {
		s.Kernel, s.Stride, s.Padding = append(s.Kernel, kernel), append(s.Stride, cmp.Or(stride, kernel)), append(s.Padding, padding)
	}
	return s
}

// Forward maps [B S.. C] to [B S'.. C].
func (p MaxPool) Forward(b *graph.Builder, x graph.Value) graph.Value { return b.MaxPool(p.Spatial, x) }

// Forward maps [B S.. C] to [B S'.. C].
func (p AvgPool) Forward(b *graph.Builder, x graph.Value) graph.Value {
	if slices.Max(append(p.Padding, 0)) > 0 {
		p.CountPadding = !p.IgnorePadding
	}
	return b.AvgPool(p.Spatial, x)
}

// AdaptiveAvgPool and AdaptiveMaxPool make so many places of each spatial dimension.
type (
	AdaptiveAvgPool []int64
	AdaptiveMaxPool []int64
)

// Forward maps [B S.. C] to [B sizes.. C].
func (p AdaptiveAvgPool) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return b.AvgPool(op.Spatial{Kernel: p, Adaptive: true}, x)
}

// Forward maps [B S.. C] to [B sizes.. C].
func (p AdaptiveMaxPool) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return b.MaxPool(op.Spatial{Kernel: p, Adaptive: true}, x)
}

// Upsample is PyTorch's layer of the same name: it resamples to Sizes, or by Scale where there are none; without a Mode to
// the nearest place.
type Upsample struct {
	Sizes        []int64
	Scale        float64
	Mode         op.Resampling
	AlignCorners bool
}

// Forward maps [B S.. C] to [B S'.. C].
func (u Upsample) Forward(b *graph.Builder, x graph.Value) graph.Value {
	u.Mode = cmp.Or(u.Mode, op.Nearest)
	sizes, s := u.Sizes, b.TypeOf(x).Shape
	if sizes != nil && u.Scale != 0 {
		b.Fail("%s: sizes %v and a scale of %v; give one of them", op.Resample, sizes, u.Scale)
		return 0
	}
	if sizes != nil || len(s) <= 2 {
		return b.Interpolate(u.Mode, u.AlignCorners, x, sizes, nil)
	}
	scales := make([]float64, 0, 3)
	for _, n := range s[1 : len(s)-1] {
		size := int64(math.Floor(float64(n) * u.Scale))
		sizes, scales = append(sizes, size), append(scales, u.Scale)
		if float64(size) == float64(n)*u.Scale || u.AlignCorners { // sizes say the same, or corners do
			scales[len(scales)-1] = 0
		}
	}
	return b.Interpolate(u.Mode, u.AlignCorners, x, sizes, scales)
}

// ChannelsLast brings [B C S..], PyTorch's order, to [B S.. C]; ChannelsFirst brings it back.
type (
	ChannelsLast  struct{}
	ChannelsFirst struct{}
)

// Forward puts dimension 1 last.
func (ChannelsLast) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return b.Permute(x, turned(b, x, 1)...)
}

// Forward puts the last dimension behind the first.
func (ChannelsFirst) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return b.Permute(x, turned(b, x, -1)...)
}

// turned is an order of dimensions: all but the first, turned by some places.
func turned(b *graph.Builder, x graph.Value, by int) []int64 {
	n := len(b.TypeOf(x).Shape) - 1
	order := []int64{0}
	for i := range max(n, 0) {
		order = append(order, int64(1+(i+by+n)%n))
	}
	return order
}

// Flatten makes one dimension of all but the first.
type Flatten struct{}

// Forward maps [B ..] to [B N].
func (Flatten) Forward(b *graph.Builder, x graph.Value) graph.Value { return b.Flatten(x, 1, -1) }

// GroupNorm is PyTorch's layer of the same name; with as many groups as channels it is InstanceNorm.
type GroupNorm struct {
	Weight *Param `hf:"weight,optional"`
	Bias   *Param `hf:"bias,optional"`
	Groups int64
	Eps    float64
	Precision
}

// NewGroupNorm starts at one and zero.
func NewGroupNorm(groups, channels int64) *GroupNorm {
	return &GroupNorm{Weight: NewParam(Constant(1), channels), Bias: NewParam(Constant(0), channels), Groups: groups, Eps: 1e-5}
}

// NewInstanceNorm is PyTorch's InstanceNorm1d, 2d and 3d without weights.
func NewInstanceNorm(channels int64) *GroupNorm { return &GroupNorm{Groups: channels, Eps: 1e-5} }

// Forward keeps the shape [B S.. C].
func (n *GroupNorm) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return n.In(b, x, func(x graph.Value) graph.Value {
		return b.GroupNorm(x, n.Groups, n.Weight.Value(b), n.Bias.Value(b), n.Eps)
	})
}
