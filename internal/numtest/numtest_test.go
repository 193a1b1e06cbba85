package numtest

import (
	"math"
	"testing"
)

func TestCompare(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		name      string
		got, want []float64
		max, nmse float64
	}{
		{"equal", []float64{1, -inf, 0}, []float64{1, -inf, 0}, 0, 0},
		{"by the largest", []float64{10, 1}, []float64{10, 2}, 0.1, 1.0 / 104},
		{"NaN", []float64{math.NaN(), 1}, []float64{1, 1}, inf, inf},
		{"NaN wanted", []float64{math.NaN()}, []float64{math.NaN()}, inf, inf},
		{"wrong infinity", []float64{inf}, []float64{-inf}, inf, inf},
		{"zeros", []float64{0.5}, []float64{0}, 0.5, 0.25},
		{"length", []float64{1}, []float64{1, 2}, inf, inf},
	} {
		if d := Compare(c.got, c.want); d.Max != c.max || d.NMSE != c.nmse {
			t.Errorf("%s: %v, want max %v, nmse %v", c.name, d, c.max, c.nmse)
		}
	}
}
