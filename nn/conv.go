package nn

import (
	"math"

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
	return &Conv{Weight: NewParam(init, dims...), Bias: NewParam(init, out), Spatial: op.Spatial{Groups: groups}}
}

// Strided is the layer with a stride and a padding, the same in all dimensions.
func (c *Conv) Strided(stride, padding int64) *Conv {
	c.Stride, c.Padding = nil, nil
	for range len(c.Weight.Shape) - 2 {
		c.Stride, c.Padding = append(c.Stride, stride), append(c.Padding, padding)
	}
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
		s := c.Spatial
		if c.PaddingMode != "" && c.PaddingMode != graph.PadZeros {
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
	return &ConvTranspose{Weight: NewParam(init, dims...), Bias: NewParam(init, out), Spatial: op.Spatial{Groups: groups}}
}

// Forward maps [B S.. in] to [B S'.. out].
func (c *ConvTranspose) Forward(b *graph.Builder, x graph.Value) graph.Value {
	return c.In(b, x, func(x graph.Value) graph.Value {
		return b.ConvTranspose(c.Spatial, c.OutputPadding, x, c.Weight.Value(b), c.Bias.Value(b))
	})
}

// MaxPool and AvgPool take the largest or the mean of windows; a Stride of none is the window's size.
// AvgPool counts padding where CountPadding is set, which is PyTorch's default.
type (
	MaxPool struct{ op.Spatial }
	AvgPool struct{ op.Spatial }
)

// Forward maps [B S.. C] to [B S'.. C].
func (p MaxPool) Forward(b *graph.Builder, x graph.Value) graph.Value { return b.MaxPool(p.Spatial, x) }

// Forward maps [B S.. C] to [B S'.. C].
func (p AvgPool) Forward(b *graph.Builder, x graph.Value) graph.Value { return b.AvgPool(p.Spatial, x) }

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

// Upsample is PyTorch's layer of the same name: it resamples to Sizes, or by Scale where there are none.
type Upsample struct {
	Sizes        []int64
	Scale        float64
	Mode         op.Resampling
	AlignCorners bool
}

// Forward maps [B S.. C] to [B S'.. C].
func (u Upsample) Forward(b *graph.Builder, x graph.Value) graph.Value {
	sizes, s := u.Sizes, b.TypeOf(x).Shape
	if sizes == nil && len(s) > 2 {
		for _, n := range s[1 : len(s)-1] {
			sizes = append(sizes, int64(math.Floor(float64(n)*u.Scale)))
		}
	}
	return b.Interpolate(u.Mode, u.AlignCorners, x, sizes, nil)
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
