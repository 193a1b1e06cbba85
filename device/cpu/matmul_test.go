package cpu

import (
	"bytes"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// A row of a matmul has the same bits alone as among others, in every type, and those of a
// 16-bit type are the f32 product of the same numbers, rounded.
func TestRowsOfMatmulsHaveTheSameBits(t *testing.T) {
	const most, n, k = 200, 77, 1096
	for _, of := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		for _, attr := range []op.Attr{{TransB: true}, {}, {TransB: true, Bias: true}} {
			b := newBench(t, 64<<20)
			x, w, bias := op.Type{DType: of, Shape: shape.Of(most, k)}, op.Type{DType: of, Shape: shape.Of(n, k)}, op.Type{DType: of, Shape: shape.Of(n)}
			if !attr.TransB {
				w.Shape = shape.Of(k, n)
			}
			at, weight, biases := b.take(x.Bytes()), b.take(w.Bytes()), b.take(bias.Bytes())
			fill(t, at, x, 1)
			fill(t, weight, w, 2)
			fill(t, biases, bias, 3)
			product := func(x op.Type, at device.Buffer) prepared {
				types, in := []op.Type{x, w}, []device.Buffer{at, weight}
				if attr.Bias {
					types, in = append(types, bias), append(in, biases)
				}
				return b.prepare(t, op.MatMul, attr, types, in...)
			}
			all := product(x, at)
			b.run(t, all)
			for _, m := range []int{1, 3, 8, 48, 49} {
				few := x
				few.Shape = shape.Of(m, k)
				first := int64(most - m)
				part := at
				part.Offset, part.Bytes = at.Offset+first*x.Bytes()/most, few.Bytes()
				p := product(few, part)
				b.run(t, p)
				if !bytes.Equal(p.out.Host(), all.out.Host()[first*all.out.Bytes/most:]) {
					t.Errorf("%v %v: %d rows have other bits alone than among %d", of, attr, m, most)
				}
			}
			if of != dtype.F32 && !attr.Bias {
				wide := func(in op.Type, at device.Buffer) (prepared, op.Type) {
					p := b.prepare(t, op.Cast, op.Attr{To: dtype.F32}, []op.Type{in}, at)
					return p, op.Type{DType: dtype.F32, Shape: in.Shape}
				}
				xs, xt := wide(x, at)
				ws, wt := wide(w, weight)
				plain := b.prepare(t, op.MatMul, attr, []op.Type{xt, wt}, xs.out, ws.out)
				rounded := b.prepare(t, op.Cast, op.Attr{To: of}, []op.Type{{DType: dtype.F32, Shape: shape.Of(most, n)}}, plain.out)
				b.run(t, xs, ws, plain, rounded)
				if !bytes.Equal(rounded.out.Host(), all.out.Host()) {
					t.Errorf("%v %v: other bits than the product in f32, rounded", of, attr)
				}
			}
		}
	}
}
