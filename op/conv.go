package op

import (
	"fmt"
	"slices"

	"spillway/shape"
)

// Spatial says how windows move over the spatial dimensions of x [B S.. C], of which there are one to
// three: of a convolution, or of pooling. Channels come last. A list with no numbers counts as ones,
// of Padding as zeros.
type Spatial struct {
	Kernel   []int64 `json:"kernel,omitempty"` // of pooling; of adaptive pooling what it makes
	Stride   []int64 `json:"stride,omitempty"`
	Padding  []int64 `json:"padding,omitempty"` // before and behind
	Dilation []int64 `json:"dilation,omitempty"`
	Groups   int64   `json:"groups,omitempty"` // 0 counts as 1
	Ceil     bool    `json:"ceil,omitempty"`   // windows that begin inside count, where some of them lies outside
	// CountPadding: zeros outside count in means (PyTorch's count_include_pad).
	CountPadding bool `json:"count_padding,omitempty"`
	// Adaptive windows are as large as makes Kernel many of them.
	Adaptive bool `json:"adaptive,omitempty"`
}

func at(list []int64, i int, none int64) int64 {
	if i < len(list) {
		return list[i]
	}
	return none
}

// Conv: y = x convolved with w, as PyTorch's conv1d, conv2d and conv3d, but with channels last.
//
//	operands  x [B S.. C], w [O C/groups K..], bias [O] with Attr.Bias
//	output    [B S'.. O]
const Conv Kind = "conv"

// ConvInput: the gradient of x of a Conv, which is a transposed convolution.
//
//	operands  dy [B S'.. O], w [O C/groups K..], and with Attr.Plus what is added to it, where windows are
//	          single places
//	output    Attr.Shape, [B S.. C]
const ConvInput Kind = "conv_input"

// ConvWeight: the gradient of w of a Conv.
//
//	operands  x [B S.. C], dy [B S'.. O]
//	output    Attr.Shape, [O C/groups K..]
const ConvWeight Kind = "conv_weight"

func init() {
	Register(Op{Kind: Conv, Infer: inferConv, Cost: costConv, Reference: referenceConv, Cases: (*CaseList).convolutions})
	Register(Op{Kind: ConvInput, Infer: inferConvInput, Cost: costConv, Reference: referenceConv, Overwrites: overwritesPlus})
	Register(Op{Kind: ConvWeight, Takes: 2, Infer: inferConvWeight, Cost: costConv, Reference: referenceConv, Accumulates: firstOutput})
}

// overwritesPlus: a sum may lie where what is added lies.
func overwritesPlus(c Call) []Overwrite {
	if !c.Attr.Plus {
		return nil
	}
	return []Overwrite{{0, 2}}
}

// Convolution is what a convolution or its gradient computes, in three spatial dimensions: those that
// it has not come first and are 1.
type Convolution struct {
	B, C, O, Groups           int64
	In, Out, Kernel           [3]int64
	Stride, Padding, Dilation [3]int64
}

// Conv describes a convolution or its gradient.
func (c Call) Conv() Convolution {
	switch c.Kind {
	case ConvInput:
		return convolution(c.Attr.Spatial, c.Out[0].Shape, c.In[1].Shape, c.In[0].Shape)
	case ConvWeight:
		return convolution(c.Attr.Spatial, c.In[0].Shape, c.Out[0].Shape, c.In[1].Shape)
	}
	return convolution(c.Attr.Spatial, c.In[0].Shape, c.In[1].Shape, c.Out[0].Shape)
}

func convolution(s Spatial, x, w, y shape.Shape) Convolution {
	one := [3]int64{1, 1, 1}
	v := Convolution{B: x[0], C: x.Last(), O: w[0], Groups: max(s.Groups, 1), In: one, Out: one, Kernel: one, Stride: one, Dilation: one}
	n := len(x) - 2
	for i := range n {
		k := 3 - n + i
		v.In[k], v.Out[k], v.Kernel[k] = x[1+i], y[1+i], w[2+i]
		v.Stride[k], v.Padding[k], v.Dilation[k] = at(s.Stride, i, 1), at(s.Padding, i, 0), at(s.Dilation, i, 1)
	}
	return v
}

// Flops counts two operations for each product.
func (v Convolution) Flops() float64 {
	return 2 * float64(v.B*v.O*(v.C/v.Groups)) * float64(v.Out[0]*v.Out[1]*v.Out[2]) * float64(v.Kernel[0]*v.Kernel[1]*v.Kernel[2])
}

// Pointwise says that the convolution is a matmul of rows: its windows are single places, all of them.
func (v Convolution) Pointwise() bool {
	one := [3]int64{1, 1, 1}
	return v.Kernel == one && v.Stride == one && v.Padding == [3]int64{} && v.Groups == 1
}

func costConv(c Call) Cost {
	v := c.Conv()
	return Cost{Flops: v.Flops(), Matrix: v.Groups < v.C || v.C == 1}
}

// convolves checks x, w and the numbers of windows, and gives the shape of y.
func convolves(s Spatial, x, w shape.Shape) (shape.Shape, error) {
	n := len(x) - 2
	if n < 1 || n > 3 || len(w) != len(x) {
		return nil, fmt.Errorf("%v convolved with %v: want [B S.. C] with one to three spatial dimensions, and [O C K..]", x, w)
	}
	groups := s.Groups
	if groups == 0 {
		groups = 1
	}
	switch {
	case groups < 0 || x.Last()%groups != 0 || w[0]%groups != 0:
		return nil, fmt.Errorf("%d groups do not divide the %d channels of %v and the %d of %v", groups, x.Last(), x, w[0], w)
	case w[1] != x.Last()/groups:
		return nil, fmt.Errorf("%v has %d channels in %d groups, the weight %v is for %d in each", x, x.Last(), groups, w, w[1])
	}
	y := shape.Shape{x[0]}
	for i := range n {
		stride, pad, dilation := at(s.Stride, i, 1), at(s.Padding, i, 0), at(s.Dilation, i, 1)
		if stride < 1 || pad < 0 || dilation < 1 || w[2+i] < 1 || stride > 1<<30 || pad > 1<<30 || dilation > 1<<20 || w[2+i] > 1<<20 {
			return nil, fmt.Errorf("spatial dimension %d has a window of %d, stride %d, padding %d, dilation %d; padding is at least 0, the others 1", i, w[2+i], stride, pad, dilation)
		}
		left := x[1+i] + 2*pad - dilation*(w[2+i]-1) - 1
		if left < 0 {
			return nil, fmt.Errorf("spatial dimension %d of %v has %d places with its padding of %d, a window of %v takes %d", i, x, x[1+i]+2*pad, pad, w, dilation*(w[2+i]-1)+1)
		}
		y = append(y, left/stride+1)
	}
	return append(y, w[0]), nil
}

func lists(s Spatial, n int) error {
	for _, l := range [][]int64{s.Kernel, s.Stride, s.Padding, s.Dilation} {
		if len(l) != 0 && len(l) != n {
			return fmt.Errorf("has %d numbers for %d spatial dimensions; give one for each", len(l), n)
		}
	}
	return nil
}

func inferConv(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 2, a.Bias); err != nil {
		return nil, err
	}
	if err := check(float(in, 0, 1), lists(a.Spatial, len(in[0].Shape)-2)); err != nil {
		return nil, err
	}
	y, err := convolves(a.Spatial, in[0].Shape, in[1].Shape)
	if err == nil && in[0].DType != in[1].DType {
		err = fmt.Errorf("%v convolved with %v: element types differ; cast one of them", in[0], in[1])
	}
	if err == nil && a.Bias {
		err = check(float(in, 2), vector(in, 2, in[1].Shape[0]))
	}
	return []Type{{in[0].DType, y}}, err
}

func inferConvInput(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 2, a.Plus); err != nil {
		return nil, err
	}
	out, err := inferConvGrad(a, in, a.Shape, in[1].Shape, in[0].Shape)
	if err == nil && a.Plus && !convolution(a.Spatial, a.Shape, in[1].Shape, in[0].Shape).Pointwise() {
		err = fmt.Errorf("something is added to a convolution whose windows %v are not single places", in[1].Shape)
	}
	if err == nil && a.Plus && !in[2].Equal(out[0]) {
		err = fmt.Errorf("%v is added to %v", in[2], out[0])
	}
	return out, err
}

func inferConvWeight(a Attr, in []Type) ([]Type, error) {
	return inferConvGrad(a, in, in[0].Shape, a.Shape, in[1].Shape)
}

// inferConvGrad checks that the convolution of x with w gives y.
func inferConvGrad(a Attr, in []Type, x, w, y shape.Shape) ([]Type, error) {
	if err := check(float(in, 0, 1), a.Shape.Check(), lists(a.Spatial, len(x)-2)); err != nil {
		return nil, err
	}
	made, err := convolves(a.Spatial, x, w)
	if err == nil && !made.Equal(y) {
		err = fmt.Errorf("the convolution of %v with %v is %v, got %v", x, w, made, y)
	}
	if err == nil && in[0].DType != in[1].DType {
		err = fmt.Errorf("%v and %v: element types differ; cast one of them", in[0], in[1])
	}
	return []Type{{in[0].DType, a.Shape}}, err
}

// Each calls f for every place of y and each place of x that it sees: rows of x and y, and the number
// of the window's place.
func (v Convolution) Each(f func(x, y, tap int64)) {
	for b := range v.B {
		for o := range v.Out[0] * v.Out[1] * v.Out[2] {
			out := [3]int64{o / (v.Out[1] * v.Out[2]), o / v.Out[2] % v.Out[1], o % v.Out[2]}
			for tap := range v.Kernel[0] * v.Kernel[1] * v.Kernel[2] {
				k := [3]int64{tap / (v.Kernel[1] * v.Kernel[2]), tap / v.Kernel[2] % v.Kernel[1], tap % v.Kernel[2]}
				x, inside := b, true
				for d := range 3 {
					i := out[d]*v.Stride[d] - v.Padding[d] + k[d]*v.Dilation[d]
					inside = inside && i >= 0 && i < v.In[d]
					x = x*v.In[d] + i
				}
				if inside {
					f(x, b*v.Out[0]*v.Out[1]*v.Out[2]+o, tap)
				}
			}
		}
	}
}

// referenceConv is all three: each product of a place of x, one of y and a weight is added to one of them.
func referenceConv(c Call, in, out []Array, _ Args) {
	v := c.Conv()
	x, w, y := in[0].F, in[1].F, out[0].F
	switch c.Kind {
	case ConvInput:
		x, y = out[0].F, in[0].F
	case ConvWeight:
		w, y = out[0].F, in[1].F
	}
	clear(out[0].F)
	if c.Attr.Plus {
		copy(out[0].F, in[2].F)
	}
	if c.Attr.Bias && c.Kind == Conv {
		for i := range y {
			y[i] = in[2].F[int64(i)%v.O]
		}
	}
	taps, each, made := v.Kernel[0]*v.Kernel[1]*v.Kernel[2], v.C/v.Groups, v.O/v.Groups
	v.Each(func(at, to, tap int64) {
		for o := range v.O {
			for i := range each {
				px, py, pw := &x[at*v.C+o/made*each+i], &y[to*v.O+o], &w[(o*each+i)*taps+tap]
				switch c.Kind {
				case ConvInput:
					*px += *py * *pw
				case ConvWeight:
					*pw += *px * *py
				default:
					*py += *px * *pw
				}
			}
		}
	})
}

func (l *CaseList) convolutions() {
	for _, k := range []struct {
		name string
		x, w []int
		s    Spatial
	}{
		{"pointwise", []int{2, 5, 3, 8}, []int{6, 8, 1, 1}, Spatial{}},
		{"3x3", []int{2, 7, 6, 5}, []int{4, 5, 3, 3}, Spatial{Padding: []int64{1, 1}}},
		{"3x3 stride 2", []int{2, 7, 8, 5}, []int{4, 5, 3, 3}, Spatial{Padding: []int64{1, 1}, Stride: []int64{2, 2}}},
		{"7x7 stride 2 of 3", []int{1, 15, 14, 3}, []int{8, 3, 7, 7}, Spatial{Padding: []int64{3, 3}, Stride: []int64{2, 2}}},
		{"1x1 stride 2", []int{2, 6, 5, 8}, []int{9, 8, 1, 1}, Spatial{Stride: []int64{2, 2}}},
		{"unequal", []int{1, 9, 8, 4}, []int{6, 4, 3, 2}, Spatial{Padding: []int64{2, 0}, Stride: []int64{1, 3}, Dilation: []int64{2, 1}}},
		{"groups", []int{2, 6, 6, 8}, []int{12, 4, 3, 3}, Spatial{Padding: []int64{1, 1}, Groups: 2}},
		{"groups of 16 stride 2", []int{2, 7, 29, 24}, []int{32, 12, 3, 3}, Spatial{Padding: []int64{1, 2}, Stride: []int64{2, 2}, Groups: 2}},
		{"groups of 4 in 3d", []int{1, 3, 5, 15, 12}, []int{12, 4, 2, 1, 3}, Spatial{Padding: []int64{1, 1, 0}, Dilation: []int64{1, 1, 2}, Groups: 3}},
		{"depthwise", []int{2, 9, 8, 24}, []int{24, 1, 3, 3}, Spatial{Padding: []int64{1, 1}, Groups: 24}},
		{"depthwise stride 2", []int{2, 9, 31, 16}, []int{16, 1, 3, 3}, Spatial{Padding: []int64{1, 3}, Stride: []int64{2, 2}, Dilation: []int64{1, 2}, Groups: 16}},
		{"depthwise 7x7", []int{1, 9, 8, 20}, []int{20, 1, 7, 7}, Spatial{Padding: []int64{3, 3}, Groups: 20}},
		{"depthwise twice stride 2", []int{1, 9, 8, 6}, []int{12, 1, 3, 3}, Spatial{Stride: []int64{2, 2}, Groups: 6}},
		{"tiles", []int{2, 9, 11, 32}, []int{40, 32, 3, 3}, Spatial{Padding: []int64{3, 0}}},
		{"tiles dilated", []int{1, 13, 12, 32}, []int{32, 32, 3, 3}, Spatial{Padding: []int64{2, 1}, Dilation: []int64{2, 3}}},
		{"tiles in 3d", []int{1, 4, 7, 6, 32}, []int{32, 32, 2, 3, 3}, Spatial{Padding: []int64{1, 1, 1}, Dilation: []int64{2, 1, 1}}},
		{"1d", []int{3, 17, 6}, []int{5, 6, 4}, Spatial{Padding: []int64{2}}},
		{"3d", []int{1, 4, 5, 6, 3}, []int{4, 3, 2, 3, 3}, Spatial{Padding: []int64{0, 1, 1}, Stride: []int64{1, 2, 1}}},
		{"patches of 3", []int{2, 8, 12, 3}, []int{9, 3, 4, 4}, Spatial{Stride: []int64{4, 4}}},
		{"patches of 8", []int{3, 6, 4, 8}, []int{16, 8, 3, 2}, Spatial{Stride: []int64{3, 2}}},
		{"patches in 3d", []int{2, 4, 6, 4, 2}, []int{8, 2, 2, 3, 2}, Spatial{Stride: []int64{2, 3, 2}}},
		{"wide", []int{2, 14, 14, 40}, []int{72, 40, 3, 3}, Spatial{Padding: []int64{1, 1}}},
	} {
		a, x, w := Attr{Spatial: k.s}, l.X(k.x...), l.X(k.w...)
		y := l.Add(k.name, Conv, a, x, w).Call.Out
		large := k.name == "wide" || k.name == "tiles" || k.name == "groups of 16 stride 2"
		l.all[len(l.all)-1].Large = large
		if len(y) == 0 {
			continue
		}
		biased := a
		biased.Bias = true
		l.Add(k.name+" bias", Conv, biased, x, w, l.X(k.w[0])).Large = large
		dy := Operand{y[0], Spread}
		toX, toW := a, a
		toX.Shape, toW.Shape = slices.Clone(x.Type.Shape), slices.Clone(w.Type.Shape)
		l.Add(k.name, ConvInput, toX, dy, w).Large = large
		if k.name == "pointwise" {
			plus := toX
			plus.Plus = true
			l.Add(k.name+" sum", ConvInput, plus, dy, w, x)
		}
		l.Add(k.name, ConvWeight, toW, x, dy).Large = large
		toW.Accumulate = true
		l.Add(k.name+" accumulate", ConvWeight, toW, x, dy).Large = large
	}
}
