package cuda

import (
	"fmt"
	"testing"

	"spillway/dtype"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/shape"
)

// On the GPU: gradients of norms of rows so wide that a block works on each.
func TestWideNorms(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	for _, kind := range []op.Kind{op.RMSNormGrad, op.LayerNormGrad} {
		for _, size := range []struct{ rows, width int64 }{{37, 2048}, {600, 4104}, {1, 8192}, {5, 1000}} {
			for _, precision := range []dtype.Type{dtype.BF16, dtype.F32} {
				x := op.Type{DType: precision, Shape: shape.Shape{size.rows, size.width}}
				c, err := op.Make(kind, op.Attr{Eps: 1e-5}, x, op.Type{DType: precision, Shape: shape.Shape{size.width}}, x)
				if err != nil {
					t.Fatal(err)
				}
				agrees(t, d, c, map[dtype.Type]float64{dtype.BF16: 1.6e-2, dtype.F32: 3e-6}[precision])
			}
		}
	}
}

// agrees compares the outputs of a call on the GPU with its reference.
func agrees(t *testing.T, d *Device, c op.Call, most float64) {
	t.Run(fmt.Sprint(c), func(t *testing.T) {
		p, err := d.prepare(c)
		if err != nil {
			t.Fatal(err)
		}
		in, want := operandsOf(c.In), make([]op.Array, len(c.Out))
		for i, typ := range c.Out {
			want[i] = op.NewArray(typ)
		}
		if err := c.Reference(in, want, op.Args{}); err != nil {
			t.Fatal(err)
		}
		for i, got := range runProgram(t, d, c, p, in) {
			if off := numtest.Compare(got.F, want[i].F); !(off.Max < most) {
				t.Errorf("output %d is off by %v", i, off)
			}
		}
	})
}

// made is a call of operands of one type.
func made(t *testing.T, kind op.Kind, a op.Attr, element dtype.Type, shapes ...shape.Shape) op.Call {
	t.Helper()
	var in []op.Type
	for _, s := range shapes {
		in = append(in, op.Type{DType: element, Shape: s})
	}
	c, err := op.Make(kind, a, in...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// On the GPU: norms of rows that a warp holds in registers, and sums over rows of many columns.
func TestRowsInRegisters(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	for _, element := range []dtype.Type{dtype.BF16, dtype.F32} {
		most := map[dtype.Type]float64{dtype.BF16: 1.6e-2, dtype.F32: 3e-6}[element]
		for _, size := range []shape.Shape{{600, 768}, {37, 256}, {5001, 504}, {1, 8}, {70, 1016}} {
			row := shape.Shape{size[1]}
			agrees(t, d, made(t, op.LayerNorm, op.Attr{Eps: 1e-5, Bias: true}, element, size, row, row), most)
			agrees(t, d, made(t, op.RMSNorm, op.Attr{Eps: 1e-5}, element, size, row), most)
			agrees(t, d, made(t, op.LayerNormGrad, op.Attr{Eps: 1e-5, Bias: true}, element, size, row, size), most)
			agrees(t, d, made(t, op.RMSNormGrad, op.Attr{Eps: 1e-5}, element, size, row, size), most)
			agrees(t, d, made(t, op.SumRows, op.Attr{InnerDims: 1}, element, size), most)
		}
		agrees(t, d, made(t, op.SumRows, op.Attr{InnerDims: 2}, element, shape.Shape{9, 7, 40}), most)
	}
}

// On the GPU: copies of sixteen bytes at once, and those that cannot be.
func TestCopiesOfManyBytes(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	for _, element := range []dtype.Type{dtype.BF16, dtype.F32} {
		most := map[dtype.Type]float64{dtype.BF16: 1.6e-2, dtype.F32: 3e-6}[element]
		agrees(t, d, made(t, op.Permute, op.Attr{Axes: []int64{0, 2, 1, 3}}, element, shape.Shape{3, 5, 7, 24}), most)
		agrees(t, d, made(t, op.Permute, op.Attr{Axes: []int64{0, 2, 3, 1}}, element, shape.Shape{5, 3, 12, 16}), most)
		agrees(t, d, made(t, op.Permute, op.Attr{Axes: []int64{0, 2, 3, 1}}, element, shape.Shape{1, 3, 8, 8}), most)
		agrees(t, d, made(t, op.Permute, op.Attr{Axes: []int64{0, 2, 3, 1}}, element, shape.Shape{5, 3, 5, 7}), most)
		agrees(t, d, made(t, op.Slice, op.Attr{Axis: 1, Start: 2, Length: 3, Step: 2}, element, shape.Shape{5, 9, 16}), most)
		agrees(t, d, made(t, op.Slice, op.Attr{Axis: 0, Start: 3, Length: 8, Step: 1}, element, shape.Shape{5, 9, 16}), most)
		agrees(t, d, made(t, op.Pad, op.Attr{Axis: 1, Start: 1, Length: 9, Step: 2}, element, shape.Shape{5, 4, 16}), most)
		agrees(t, d, made(t, op.Expand, op.Attr{Shape: []int64{5, 4, 16}}, element, shape.Shape{5, 1, 16}), most)
	}
}
