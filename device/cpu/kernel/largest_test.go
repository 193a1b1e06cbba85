package kernel

import (
	"math"
	"slices"
	"testing"
)

// TestLargest finds the first of the largest elements, also of equal ones, infinities and NaN, on every path.
func TestLargest(t *testing.T) {
	values := []float32{0, 1, 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 2}
	const places = 9
	rng := newRand()
	for _, path := range Paths() {
		before, err := Choose(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 41 {
			x := make([]float32, places*n)
			for i := range x {
				x[i] = values[rng.IntN(len(values))]
			}
			top, at := slices.Clone(x[:n]), make([]int32, n)
			for p := 1; p < places; p++ {
				Largest(top, at, x[p*n:], int32(p))
			}
			for i := range n {
				first := 0
				for p := range places {
					if x[p*n+i] > x[first*n+i] {
						first = p
					}
				}
				if got, want := top[i], x[first*n+i]; int(at[i]) != first || math.Float32bits(got) != math.Float32bits(want) {
					t.Errorf("%s: element %d of %d: %v at %d, want %v at %d", path, i, n, got, at[i], want, first)
				}
			}
		}
		if _, err := Choose(before); err != nil {
			t.Fatal(err)
		}
	}
}
