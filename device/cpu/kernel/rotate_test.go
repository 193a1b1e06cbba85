package kernel

import (
	"math"
	"testing"
)

// Heads are rotated as by the formula, and what is beyond the pairs of a head is copied.
func TestRotate(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, n := range lengths() {
			for _, heads := range []int{1, 3} {
				width := 2*n + n%5
				x, cos, sin := random(rng, heads*width), random(rng, n), random(rng, n)
				y, check := guarded(t, len(x))
				Rotate(y, x, cos, sin, heads)
				for h := 0; h < len(x); h += width {
					for i := range n {
						a, b, c, s := float64(x[h+i]), float64(x[h+n+i]), float64(cos[i]), float64(sin[i])
						near(t, "lower half", i, y[h+i], a*c-b*s)
						near(t, "upper half", i, y[h+n+i], b*c+a*s)
					}
					for i := 2 * n; i < width; i++ {
						near(t, "rest", i, y[h+i], float64(x[h+i]))
					}
				}
				check()
			}
		}
	})
}

// Angles have the cosine and sine of package math, of any position.
func TestAngles(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		freq := []float32{1, 0.7, 0.1, 1e-3, 3e-5, 0, 0.9, 0.123, 1, 0.7, 0.1, 1e-3, 3e-5, 0, 0.9, 0.123, 0.8, 0.25}
		cos, sin := make([]float32, len(freq)), make([]float32, len(freq))
		check := func(position int32) {
			for _, inverse := range []bool{false, true} {
				Angles(cos, sin, freq, position, 1.5, inverse)
				for i, f := range freq {
					s, c := math.Sincos(float64(float32(position) * f))
					if inverse {
						s = -s
					}
					if math.Abs(float64(cos[i])-1.5*c) > 1e-7 || math.Abs(float64(sin[i])-1.5*s) > 1e-7 {
						t.Fatalf("position %d, frequency %v, inverse %v: %v and %v, want %v and %v", position, f, inverse, cos[i], sin[i], 1.5*c, 1.5*s)
					}
				}
			}
		}
		for position := int32(-5000); position < 20000; position++ {
			check(position)
		}
		for _, position := range []int32{131071, 1<<20 - 1, 1 << 20, 1<<20 + 1, -1 << 20, math.MaxInt32, math.MinInt32} {
			check(position)
		}
	})
}
