package kernel

import (
	"math"
	"testing"
)

// near fails unless got is want within the rounding of about eight operations.
func near(t *testing.T, what string, i int, got float32, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 1e-6*(1+math.Abs(want)) || got != got {
		t.Fatalf("%s: element %d is %v, want %v", what, i, got, want)
	}
}

// lengths covers every tail and the unrolled loops.
func lengths() []int {
	var ns []int
	for n := range 70 {
		ns = append(ns, n)
	}
	return append(ns, 127, 128, 129, 1000, chunk, chunk+5)
}

func TestElementwise(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, n := range lengths() {
			x, y, old := random(rng, n), random(rng, n), random(rng, n)
			for name, f := range map[string]struct {
				run  func(dst []float32)
				want func(i int) float32
			}{
				"add":        {func(d []float32) { Add(d, x, y) }, func(i int) float32 { return x[i] + y[i] }},
				"mul":        {func(d []float32) { Mul(d, x, y) }, func(i int) float32 { return x[i] * y[i] }},
				"add_mul":    {func(d []float32) { AddMul(d, x, y) }, func(i int) float32 { return old[i] + x[i]*y[i] }},
				"scale":      {func(d []float32) { Scale(d, x, 0.3) }, func(i int) float32 { return x[i] * 0.3 }},
				"add_scaled": {func(d []float32) { AddScaled(d, x, 0.3) }, func(i int) float32 { return old[i] + x[i]*0.3 }},
			} {
				dst, check := guarded(t, n)
				copy(dst, old)
				f.run(dst)
				for i := range dst {
					near(t, name, i, dst[i], float64(f.want(i)))
				}
				check()
			}
		}
	})
}

func TestSums(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, n := range lengths() {
			x, y, z := random(rng, n), random(rng, n), random(rng, n)
			var sum, dot, dot3, spread, squares float64
			top := math.Inf(-1)
			for i := range n {
				a, b, c := float64(x[i]), float64(y[i]), float64(z[i])
				sum, dot, squares = sum+a, dot+a*b, squares+a*a
				dot3 += a * b * (c - 0.75)
				spread += (a - 0.75) * (a - 0.75)
				top = max(top, a)
			}
			size := math.Sqrt(float64(n)) + 1 // how large such sums are
			near(t, "sum", n, float32(Sum(x)/size), sum/size)
			near(t, "dot", n, float32(Dot(x, y)/size), dot/size)
			near(t, "dot3", n, active.dot3(x, y, z, 0.75)/float32(size), dot3/size)
			near(t, "spread", n, active.spread(x, 0.75), spread)
			if got := SumSquares(x); math.Abs(got-squares) > 1e-14*squares {
				t.Fatalf("sum of %d squares is %v, want %v", n, got, squares)
			}
			if got := Max(x); float64(got) != top {
				t.Fatalf("max of %d is %v, want %v", n, got, top)
			}
		}
	})
}
