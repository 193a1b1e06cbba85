package kernel

import (
	"fmt"
	"math"
	"testing"

	"spillway/dtype"
	"spillway/quant"
)

// Matmuls with weights as they are stored give what they give with decoded ones, but for rounding; a row has the same
// bits whatever rows are computed with it.
func TestPackedDots(t *testing.T) {
	eachPath(t, testPackedDots)
}

func testPackedDots(t *testing.T) {
	for _, kind := range []dtype.Type{quant.NF4, quant.FP4, quant.Q4_K, quant.Q6_K, quant.RowI8} {
		for _, c := range []struct{ m, n, k, workers int }{{1, 37, 256, 1}, {3, 130, 1024, 3}, {4, 64, 512, 2}} {
			t.Run(fmt.Sprint(kind, c), func(t *testing.T) {
				if !HasPackedDots(kind, c.k) {
					t.Skip("these kernels need AVX2, which this CPU does not have; others serve there")
				}
				w, x, bias := make([]float32, c.n*c.k), make([]float32, c.m*c.k), make([]float32, c.n)
				for i := range w {
					w[i] = float32(math.Sin(float64(i)*1.7) * (1 + float64(i%7)))
				}
				for i := range x {
					x[i] = float32(math.Cos(float64(i)) + 0.3)
				}
				for i := range bias {
					bias[i] = float32(i)
				}
				raw := make([]byte, kind.Bytes(int64(len(w))))
				if codec := quant.Of(kind); codec.Bytes != nil {
					raw = make([]byte, codec.Bytes(int64(len(w))))
				}
				if kind == quant.RowI8 {
					raw = make([]byte, len(w)+4*c.n)
				}
				if err := quant.Encode(kind, raw, w, c.k); err != nil {
					t.Fatal(err)
				}
				quant.Of(kind).Decode(w, raw, len(w), c.k, 0)
				p := NewPool(c.workers)
				defer p.Close()
				product := func(x []float32, m int) []float32 {
					g := &PackedDots{M: m, N: c.n, K: c.k, Type: kind, X: x, C: make([]float32, m*c.n), Bias: bias, Raw: raw}
					g.Work = make([]float32, g.Workspace(c.workers))
					g.Run(p)
					return g.C
				}
				all := product(x, c.m)
				for i := range c.m {
					alone := product(x[i*c.k:][:c.k], 1)
					for j := range c.n {
						want, size := float64(bias[j]), math.Abs(float64(bias[j]))
						for k := range c.k {
							v := float64(x[i*c.k+k]) * float64(w[j*c.k+k])
							want, size = want+v, size+math.Abs(v)
						}
						got := all[i*c.n+j]
						if math.Abs(float64(got)-want) > 2e-6*size {
							t.Fatalf("row %d, column %d: %v, want %v", i, j, got, want)
						}
						if got != alone[j] {
							t.Fatalf("row %d, column %d: %v among others, %v alone", i, j, got, alone[j])
						}
					}
				}
			})
		}
	}
}
