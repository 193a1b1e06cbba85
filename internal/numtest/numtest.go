// Package numtest helps tests with numbers: it makes some and says how far apart
// two results are.
package numtest

import (
	"fmt"
	"math"

	"spillway/op"
)

// Distance says how far numbers are from the right ones.
type Distance struct {
	// Max is the largest difference, divided by the largest right number.
	Max float64
	// NMSE is the summed squared difference, divided by the summed squared right
	// numbers.
	NMSE float64
}

// String prints both measures.
func (d Distance) String() string { return fmt.Sprintf("max %.3g, nmse %.3g", d.Max, d.NMSE) }

// Compare measures got against want. Equal infinities are no difference; any
// other number that is not finite is an infinite one. Where all right numbers are
// zero, differences count as they are.
func Compare(got, want []float64) Distance {
	if len(got) != len(want) {
		return Distance{math.Inf(1), math.Inf(1)}
	}
	var worst, top, off, power float64
	for i, w := range want {
		if got[i] == w {
			if !math.IsInf(w, 0) {
				top, power = max(top, math.Abs(w)), power+w*w
			}
			continue
		}
		d := math.Abs(got[i] - w)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			return Distance{math.Inf(1), math.Inf(1)}
		}
		worst, off = max(worst, d), off+d*d
		top, power = max(top, math.Abs(w)), power+w*w
	}
	if top == 0 {
		return Distance{worst, off}
	}
	return Distance{worst / top, off / power}
}

// Fill writes random numbers in [-1, 1) to an array, the same for the same seed.
func Fill(a op.Array, seed uint64) {
	for i := range a.F {
		a.F[i] = 2*float64(op.Uniform(seed, 0, uint64(i))) - 1
	}
}

// Random makes an array that Fill filled.
func Random(t op.Type, seed uint64) op.Array {
	a := op.NewArray(t)
	Fill(a, seed)
	return a
}
