package kernel

import (
	"fmt"
	"math"
	"testing"

	"spillway/dtype"
)

// Sums in any order are as near to exact ones as sums in order, and a row has the same bits whatever rows
// are computed with it and however many workers there are.
func TestDots(t *testing.T) {
	eachPath(t, testDots)
}

func testDots(t *testing.T) {
	for _, c := range []struct{ m, n, k, workers int }{{1, 64, 64, 1}, {1, 257, 96, 3}, {3, 101, 4096, 2}, {8, 33, 32, 4}, {4, 130, 64, 2}, {6, 77, 288, 3}, {1, 1000, 1024, 5}} {
		for _, add := range []string{"", "bias", "plus", "accumulate"} {
			t.Run(fmt.Sprint(c, add), func(t *testing.T) {
				p := NewPool(c.workers)
				defer p.Close()
				a, codes, extra := make([]float32, c.m*c.k), make([]uint16, c.n*c.k), make([]float32, c.m*c.n)
				for i := range a {
					a[i] = float32(math.Sin(float64(i)))
				}
				for i := range codes {
					codes[i] = uint16(math.Float32bits(float32(math.Cos(float64(3*i)))) >> 16)
				}
				for i := range extra {
					extra[i] = float32(i % 17)
				}
				product := func(from, m int) []float32 {
					g := &Gemm{M: m, N: c.n, K: c.k, CStep: c.n, A: Matrix{Data: a[from*c.k:], Step: c.k}, B: Matrix{Codes: codes, Type: dtype.BF16, Step: c.k, Transposed: true},
						C: make([]float32, m*c.n), AnyOrder: true}
					if active.dots && !g.isDots() {
						t.Fatal("it is computed otherwise")
					}
					switch add {
					case "bias":
						g.Bias = extra[:c.n]
					case "plus":
						g.Plus = extra[from*c.n:]
					case "accumulate":
						g.Accumulate = true
						copy(g.C, extra[from*c.n:])
					}
					g.Work = make([]float32, g.Workspace(c.workers))
					g.Run(p)
					return g.C
				}
				all := product(0, c.m)
				for i := range c.m {
					alone := product(i, 1)
					for j := range c.n {
						var want, size float64
						for k := range c.k {
							x := float64(a[i*c.k+k]) * float64(math.Float32frombits(uint32(codes[j*c.k+k])<<16))
							want, size = want+x, size+math.Abs(x)
						}
						switch add {
						case "bias":
							want += float64(extra[j])
						case "plus", "accumulate":
							want += float64(extra[i*c.n+j])
						}
						got := all[i*c.n+j]
						if d := math.Abs(float64(got) - want); d > 1e-6*(size+math.Abs(want)) {
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
