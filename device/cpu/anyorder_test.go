package cpu

import (
	"math"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// Matmuls whose sums may be in any order give what they give in order, but for rounding, with weights of every
// type.
func TestSumsInAnyOrder(t *testing.T) {
	d := Open(Options{Threads: 2})
	defer d.Close()
	for _, kind := range []dtype.Type{dtype.BF16, quant.NF4, quant.Q4_K, quant.Q6_K, quant.RowI8} {
		for _, rows := range []int64{1, 2, 4, 7} {
			results := make([][]float32, 2)
			for i, any := range []bool{false, true} {
				attr := op.Attr{AnyOrder: any}
				of := op.QuantizedMatmul
				if kind == dtype.BF16 {
					of, attr.TransB = op.MatMul, true
				}
				c, err := op.Make(of, attr, op.Type{DType: dtype.BF16, Shape: []int64{1, rows, 512}}, op.Type{DType: kind, Shape: []int64{96, 512}})
				if err != nil {
					t.Fatal(err)
				}
				k, err := d.Kernel(c)
				if err != nil {
					t.Fatal(err)
				}
				l, size := device.Arrange(c, k.Workspace(), alignment)
				l.Args = &op.Args{}
				m, err := d.Alloc(size)
				if err != nil {
					t.Fatal(err)
				}
				l.Place(m)
				for n, in := range c.In {
					a := op.NewArray(in)
					for e := range a.F {
						a.F[e] = math.Sin(float64(e*(n+2))) + 0.1
					}
					raw, err := a.Encode()
					if err != nil {
						t.Fatal(err)
					}
					copy(l.Buffers[n].Host(), raw)
				}
				q, err := d.Queue("compute")
				if err != nil {
					t.Fatal(err)
				}
				if err := q.Launch(k, l); err != nil {
					t.Fatal(err)
				}
				if err := q.Close(); err != nil {
					t.Fatal(err)
				}
				out := view[uint16](l.Buffers[2])
				results[i] = make([]float32, len(out))
				dtype.BF16.Widen(results[i], out)
				if err := m.Free(); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range results[0] {
				if got := results[1][i]; math.Abs(float64(got-want)) > 0.01*math.Abs(float64(want))+0.02 {
					t.Fatalf("%v, %d rows: element %d is %v, in order %v", kind, rows, i, got, want)
				}
			}
		}
	}
}
