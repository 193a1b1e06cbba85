package cpu

import (
	"bytes"
	"math"
	"testing"
	"unsafe"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// convolved is a convolution of a test: all lists are for the spatial dimensions, and groups may be 0.
type convolved struct {
	name                      string
	x, w                      []int // [B S.. C], [O C/groups K..]
	stride, padding, dilation []int64
	groups                    int64
}

// Shapes that take several pieces of work, with edges that lie across them.
var manyPieces = []convolved{
	{"groups of 4", []int{2, 30, 31, 64}, []int{64, 4, 3, 3}, nil, []int64{1, 1}, nil, 16},
	{"groups of 8", []int{2, 11, 9, 48}, []int{48, 8, 3, 3}, nil, []int64{1, 2}, nil, 6},
	{"groups of 8 of many", []int{2, 7, 9, 512}, []int{512, 8, 3, 3}, nil, []int64{1, 1}, nil, 64},
	{"groups of 16 without padding", []int{1, 9, 7, 32}, []int{32, 16, 3, 3}, nil, nil, nil, 2},
	{"groups of 2", []int{2, 6, 3, 16}, []int{16, 2, 3, 3}, nil, []int64{2, 1}, nil, 8},
	{"odd number of groups of 8", []int{2, 7, 9, 40}, []int{40, 8, 3, 3}, nil, []int64{1, 1}, nil, 5},
	{"groups of 8 stride 2", []int{2, 33, 30, 128}, []int{128, 8, 3, 3}, []int64{2, 2}, []int64{1, 1}, nil, 16},
	{"groups of 8 in 3d", []int{1, 3, 24, 31, 64}, []int{64, 8, 2, 3, 3}, []int64{2, 1, 1}, []int64{1, 1, 1}, []int64{1, 2, 1}, 8},
	{"7x7 stride 2 of 3", []int{2, 45, 40, 3}, []int{16, 3, 7, 7}, []int64{2, 2}, []int64{3, 3}, nil, 0},
	{"runs in 3d", []int{2, 5, 30, 29, 2}, []int{8, 2, 2, 3, 10}, []int64{2, 1, 3}, []int64{1, 1, 4}, []int64{1, 2, 1}, 0},
	{"4x4 stride 2 to 3", []int{2, 33, 22, 3}, []int{20, 3, 4, 4}, []int64{2, 2}, []int64{1, 1}, nil, 0},
	{"windows that are apart", []int{2, 17, 21, 2}, []int{8, 2, 3, 2}, []int64{2, 3}, []int64{0, 1}, nil, 0},
	{"padding wider than the stride", []int{2, 19, 6, 5}, []int{8, 5, 9, 5}, []int64{3, 1}, []int64{7, 4}, nil, 0},
	{"7x7 stride 2 of 3 to 64", []int{2, 15, 40, 3}, []int{64, 3, 7, 7}, []int64{2, 2}, []int64{3, 3}, nil, 0},
	{"7x7 stride 2 of 3 to 128", []int{1, 9, 31, 3}, []int{128, 3, 7, 7}, []int64{2, 2}, []int64{3, 3}, nil, 0},
	{"3x3 stride 2 of 3 to 256", []int{1, 9, 11, 3}, []int{256, 3, 3, 3}, []int64{2, 2}, []int64{1, 1}, nil, 0},
	{"1d 10 stride 5 to 32", []int{2, 713, 1}, []int{32, 1, 10}, []int64{5}, nil, nil, 0},
	{"1d 10 stride 5", []int{2, 213, 1}, []int{24, 1, 10}, []int64{5}, nil, nil, 0},
	{"3x3 stride 2 of 3", []int{2, 33, 30, 3}, []int{32, 3, 3, 3}, []int64{2, 2}, []int64{1, 1}, nil, 0},
	{"5x5 of 3", []int{2, 14, 30, 3}, []int{40, 3, 5, 5}, nil, []int64{2, 2}, nil, 0},
	{"3x4 of 3", []int{2, 14, 30, 3}, []int{16, 3, 3, 4}, nil, []int64{0, 2}, nil, 0},
	{"3x3 stride 2", []int{3, 20, 23, 40}, []int{32, 40, 3, 3}, []int64{2, 2}, []int64{1, 1}, nil, 0},
	{"3x3 stride 2 with whole tiles", []int{2, 23, 27, 32}, []int{32, 32, 3, 3}, []int64{2, 2}, []int64{1, 1}, nil, 0},
	{"3x3 stride 2 without padding", []int{2, 17, 23, 32}, []int{48, 32, 3, 3}, []int64{2, 2}, []int64{0, 2}, nil, 0},
	{"3d stride 2", []int{1, 4, 41, 33, 3}, []int{8, 3, 3, 7, 7}, []int64{2, 2, 2}, []int64{3, 3, 3}, nil, 0},
	{"groups of 40 stride 3", []int{1, 40, 31, 80}, []int{72, 40, 3, 4}, []int64{3, 2}, []int64{1, 2}, []int64{1, 2}, 2},
	{"1d", []int{2, 77, 136}, []int{128, 136, 3}, nil, []int64{1}, nil, 0},
	{"1d without padding", []int{1, 50, 128}, []int{152, 128, 3}, nil, nil, nil, 0},
	{"1d of 7", []int{3, 235, 40}, []int{48, 40, 7}, nil, []int64{3}, nil, 0},
	{"1d of 7 whose last place is alone", []int{24, 641, 32}, []int{32, 32, 7}, nil, []int64{3}, nil, 0},
	{"3x3 of several parts", []int{4, 46, 50, 16}, []int{32, 16, 3, 3}, nil, []int64{1, 1}, nil, 0},
	{"3x3 stride 2 of several parts", []int{4, 71, 80, 32}, []int{32, 32, 3, 3}, []int64{2, 2}, []int64{1, 1}, nil, 0},
	{"1d of several parts", []int{2, 1600, 32}, []int{32, 32, 3}, nil, []int64{1}, nil, 0},
	{"1d of 4 without padding", []int{2, 202, 32}, []int{32, 32, 4}, nil, nil, nil, 0},
	{"1d of 5 with far channels", []int{2, 204, 32}, []int{208, 32, 5}, nil, []int64{4}, nil, 0},
	{"1x1 stride 2", []int{3, 33, 30, 128}, []int{128, 128, 1, 1}, []int64{2, 2}, nil, nil, 0},
	{"1x1 stride 2 past the caches", []int{2, 92, 93, 256}, []int{3, 256, 1, 1}, []int64{2, 2}, nil, nil, 0},
	{"1x1 stride 4 of few places", []int{2, 9, 8, 40}, []int{56, 40, 1, 1}, []int64{4, 4}, nil, nil, 0},
	{"3x3 of several panels", []int{2, 9, 10, 72}, []int{136, 72, 3, 3}, nil, []int64{1, 1}, nil, 0},
	{"3x3 in 3d of several slabs", []int{1, 3, 9, 8, 200}, []int{40, 200, 3, 3, 3}, nil, []int64{1, 1, 1}, nil, 0},
	{"1x1 in 3d with strides", []int{2, 5, 17, 21, 40}, []int{56, 40, 1, 1, 1}, []int64{2, 3, 1}, nil, nil, 0},
	{"depthwise", []int{2, 20, 27, 48}, []int{48, 1, 3, 3}, nil, []int64{1, 1}, nil, 48},
	{"depthwise of 5 channels", []int{2, 7, 6, 5}, []int{5, 1, 3, 3}, nil, []int64{2, 0}, nil, 5},
	{"depthwise of 21 channels", []int{2, 6, 9, 21}, []int{21, 1, 3, 3}, nil, []int64{0, 2}, nil, 21},
	{"depthwise stride 2", []int{2, 21, 27, 24}, []int{24, 1, 3, 5}, []int64{2, 2}, []int64{1, 3}, []int64{1, 2}, 24},
	{"depthwise 7x7", []int{1, 17, 19, 16}, []int{16, 1, 7, 7}, nil, []int64{3, 3}, nil, 16},
	{"depthwise 7x7 of 192 channels", []int{2, 9, 14, 192}, []int{192, 1, 7, 7}, nil, []int64{3, 3}, nil, 192},
	{"depthwise 7x7 without padding", []int{1, 7, 16, 32}, []int{32, 1, 7, 7}, nil, nil, nil, 32},
	{"depthwise 7x7 wider than the plane", []int{2, 2, 4, 16}, []int{16, 1, 7, 7}, nil, []int64{3, 3}, nil, 16},
	{"depthwise 3x7 with much padding", []int{2, 3, 5, 16}, []int{16, 1, 3, 7}, nil, []int64{4, 6}, nil, 16},
	{"depthwise 1d of 7", []int{2, 30, 48}, []int{48, 1, 7}, nil, []int64{3}, nil, 48},
	{"depthwise 3x3 of whole vectors", []int{2, 7, 5, 32}, []int{32, 1, 3, 3}, nil, []int64{1, 1}, nil, 32},
	{"depthwise 3x3 of two columns", []int{2, 6, 2, 19}, []int{19, 1, 3, 3}, nil, []int64{2, 2}, nil, 19},
	{"depthwise 3x3 without padding", []int{1, 8, 9, 16}, []int{16, 1, 3, 3}, nil, nil, nil, 16},
	{"depthwise 1d of 256 channels", []int{2, 40, 256}, []int{256, 1, 31}, nil, []int64{15}, nil, 256},
	{"depthwise 1d", []int{2, 90, 16}, []int{16, 1, 31}, nil, []int64{15}, nil, 16},
	{"depthwise wider than the line", []int{2, 3, 5, 8}, []int{8, 1, 3, 7}, nil, []int64{1, 3}, nil, 8},
	{"depthwise in 3d", []int{1, 4, 5, 9, 8}, []int{8, 1, 3, 1, 4}, []int64{1, 2, 1}, []int64{1, 0, 2}, nil, 8},
}

func (c convolved) attr() op.Attr {
	return op.Attr{Spatial: op.Spatial{Stride: c.stride, Padding: c.padding, Dilation: c.dilation, Groups: c.groups}}
}

func sized(n []int) op.Type { return op.Type{DType: dtype.F32, Shape: shape.Of(n...)} }

// calls are the convolution and its gradients, of so many samples.
func (c convolved) calls(t testing.TB, samples int) (calls [3]op.Call) {
	x := sized(append([]int{samples}, c.x[1:]...))
	made := func(kind op.Kind, a op.Attr, in ...op.Type) op.Call {
		call, err := op.Make(kind, a, in...)
		must(t, err)
		return call
	}
	a := c.attr()
	calls[0] = made(op.Conv, a, x, sized(c.w))
	toX, toW := a, a
	toX.Shape, toW.Shape = x.Shape, sized(c.w).Shape
	calls[1] = made(op.ConvInput, toX, calls[0].Out[0], sized(c.w))
	calls[2] = made(op.ConvWeight, toW, x, calls[0].Out[0])
	return calls
}

// spread are numbers that are the same for the same seed, between -1 and 1.
func spread(n int64, seed uint32) []float32 {
	list := make([]float32, n)
	for i := range list {
		seed = seed*1664525 + 1013904223
		list[i] = float32(int32(seed)) / (1 << 31)
	}
	return list
}

// runConv computes a call of two operands on so many workers; scratch memory holds NaN before.
func runConv(t *testing.T, call op.Call, workers int, x, w []float32) []float32 {
	d := Open(Options{Threads: workers})
	k, err := d.Kernel(call)
	must(t, err)
	q := openQueue(t, d)
	defer func() { must(t, d.Close()) }()
	defer func() { must(t, q.Close()) }()
	var held []device.Memory
	defer func() {
		for _, m := range held {
			must(t, m.Free())
		}
	}()
	take := func(n int64) device.Buffer {
		m, err := d.Alloc(max(n, 4))
		must(t, err)
		held = append(held, m)
		return device.Buffer{Memory: m, Bytes: n}
	}
	l := &device.Launch{Workspace: take(k.Workspace())}
	for _, typ := range append(append([]op.Type{}, call.In...), call.Out[0]) {
		l.Buffers = append(l.Buffers, take(typ.Bytes()))
	}
	copy(F32(l, 0), x)
	copy(F32(l, 1), w)
	for _, s := range [][]float32{scratch(l), F32(l, 2)} {
		for i := range s {
			s[i] = float32(math.NaN())
		}
	}
	must(t, q.Launch(k, l))
	must(t, q.Sync())
	return append([]float32{}, F32(l, 2)...)
}

// direct is the formula of a convolution: it calls f with the places of each multiplication in x, w and y.
func direct(v op.Convolution, f func(x, w, y int)) {
	each, made := int(v.C/v.Groups), int(v.O/v.Groups)
	taps := v.Kernel[0] * v.Kernel[1] * v.Kernel[2]
	for place := range v.B * v.Out[0] * v.Out[1] * v.Out[2] {
		out := [3]int64{place / v.Out[2] / v.Out[1] % v.Out[0], place / v.Out[2] % v.Out[1], place % v.Out[2]}
		for tap := range taps {
			at := [3]int64{tap / v.Kernel[2] / v.Kernel[1], tap / v.Kernel[2] % v.Kernel[1], tap % v.Kernel[2]}
			from, inside := place/(v.Out[0]*v.Out[1]*v.Out[2]), true
			for d := range at {
				at[d] = out[d]*v.Stride[d] - v.Padding[d] + at[d]*v.Dilation[d]
				inside = inside && at[d] >= 0 && at[d] < v.In[d]
				from = from*v.In[d] + at[d]
			}
			for o := 0; inside && o < int(v.O); o++ {
				for c := range each {
					f(int(from*v.C)+o/made*each+c, (o*each+c)*int(taps)+int(tap), int(place*v.O)+o)
				}
			}
		}
	}
}

// Convolutions of many pieces of work give the sums of the formula on every path, the same bits with one worker, with
// three and with nine, and the first sample the same bits alone and among others.
func TestConvolutionsOfManyPieces(t *testing.T) {
	for _, c := range manyPieces {
		t.Run(c.name, c.check)
	}
}

func (c convolved) check(t *testing.T) {
	calls := c.calls(t, c.x[0])
	x, w, dy := spread(calls[0].In[0].Shape.Elements(), 1), spread(calls[0].In[1].Shape.Elements(), 2), spread(calls[0].Out[0].Shape.Elements(), 3)
	want := [3][]float64{make([]float64, len(dy)), make([]float64, len(x)), make([]float64, len(w))}
	sizes := [3][]float64{make([]float64, len(dy)), make([]float64, len(x)), make([]float64, len(w))}
	add := func(n, at int, term float64) {
		want[n][at] += term
		sizes[n][at] += math.Abs(term)
	}
	direct(calls[0].Conv(), func(i, j, k int) {
		add(0, k, float64(x[i])*float64(w[j]))
		add(1, i, float64(dy[k])*float64(w[j]))
		add(2, j, float64(dy[k])*float64(x[i]))
	})
	operands := [3][2][]float32{{x, w}, {dy, w}, {x, dy}}
	for _, path := range kernel.Paths() {
		before, err := kernel.Choose(path)
		must(t, err)
		for n, call := range calls {
			got := runConv(t, call, 1, operands[n][0], operands[n][1])
			for i, sum := range want[n] {
				if off := math.Abs(float64(got[i]) - sum); !(off <= 4e-6*(sizes[n][i]+1)) {
					t.Fatalf("%s: %v: element %d is %v, want %v", path, call.Kind, i, got[i], sum)
				}
			}
			for _, workers := range []int{3, 9}[:1+n/2] {
				if again := runConv(t, call, workers, operands[n][0], operands[n][1]); !bytes.Equal(raw(got), raw(again)) {
					t.Errorf("%s: %v differs between one worker and %d", path, call.Kind, workers)
				}
			}
			if n == 2 {
				continue // a sum over samples
			}
			alone := c.calls(t, 1)[n]
			first := runConv(t, alone, 2, operands[n][0][:alone.In[0].Shape.Elements()], w)
			if !bytes.Equal(raw(first), raw(got[:len(first)])) {
				t.Errorf("%s: %v of the first sample differs alone and among others", path, call.Kind)
			}
		}
		_, err = kernel.Choose(before)
		must(t, err)
	}
}

func raw(x []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x)) }
