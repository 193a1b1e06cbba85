package op

import (
	"math"
	"testing"

	"spillway/dtype"
)

// The average of many roundings is the number, each is one of its two neighbours, and
// the choices of two streams have nothing to do with each other.
func TestRoundRandomly(t *testing.T) {
	const n = 1 << 16
	for _, f := range []float32{1.001, -3.14159, 1e-3, 7.25e8, -2.5e-38} {
		below := math.Float32frombits(math.Float32bits(f) &^ 0xffff)
		above := math.Float32frombits(math.Float32bits(f)&^0xffff + 0x10000)
		unit := float64(above - below)
		var sum, both, ups float64
		for i := range uint64(n) {
			got, other := dtype.FromBF16(RoundStochastic(f, 5, i)), dtype.FromBF16(RoundStochastic(f, 6, i))
			if got != below && got != above {
				t.Fatalf("%v became %v, its neighbours are %v and %v", f, got, below, above)
			}
			up, otherUp := float64(got-below)/unit, float64(other-below)/unit
			sum, ups, both = sum+up, ups+up+otherUp, both+up*otherUp
		}
		chance := float64(f-below) / unit
		if off := math.Abs(sum/n - chance); off > 4*0.5/math.Sqrt(n) {
			t.Errorf("%v goes up %v of the time, want %v", f, sum/n, chance)
		}
		if off := math.Abs(both/n - chance*chance); off > 4*0.5/math.Sqrt(n) {
			t.Errorf("%v goes up in two streams at once %v of the time, want %v", f, both/n, chance*chance)
		}
	}
	for _, f := range []float32{0, 1, -0.5, float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32} {
		if got := RoundStochastic(f, 1, 9); f != math.MaxFloat32 && got != dtype.ToBF16(f) {
			t.Errorf("%v became %v", f, dtype.FromBF16(got))
		}
	}
	if f := dtype.FromBF16(RoundStochastic(float32(math.NaN()), 1, 2)); f == f {
		t.Errorf("NaN became %v", f)
	}
}
