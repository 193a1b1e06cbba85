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
					most := map[dtype.Type]float64{dtype.BF16: 1.6e-2, dtype.F32: 3e-6}[precision]
					for i, got := range runProgram(t, d, c, p, in) {
						if off := numtest.Compare(got.F, want[i].F); !(off.Max < most) {
							t.Errorf("output %d is off by %v", i, off)
						}
					}
				})
			}
		}
	}
}
