package op

import (
	"math"
	"testing"

	"spillway/dtype"
)

// The average of many roundings is the number, each is one of its two neighbours, and
// the choices of two streams have nothing to do with each other.
func TestRoundRandomly(t *testing.T) {
	roundsRandomly(t, RoundStochastic)
}

// So it is for states, of which four neighbours share a random number: neither do the
// choices at two neighbouring positions have to do with each other.
func TestRoundStates(t *testing.T) {
	for state := range 2 {
		roundsRandomly(t, func(f float32, key, position uint64) uint16 { return StateStream(key, state).RoundState(f, position) })
	}
	for apart := range uint64(8) {
		roundsRandomly(t, func(f float32, key, position uint64) uint16 {
			if key == 6 {
				position += 1 + apart
			}
			return StateStream(5, 0).RoundState(f, position)
		})
	}
	roundsRandomly(t, func(f float32, key, position uint64) uint16 { // both states of a weight
		return StateStream(5, int(key-5)&1).RoundState(f, position)
	})
}

// roundsRandomly tries a rounding with the keys 5 and 6.
func roundsRandomly(t *testing.T, round func(f float32, key, position uint64) uint16) {
	t.Helper()
	const n = 1 << 16
	for _, f := range []float32{1.001, -3.14159, 1e-3, 7.25e8, -2.5e-38} {
		below := math.Float32frombits(math.Float32bits(f) &^ 0xffff)
		above := math.Float32frombits(math.Float32bits(f)&^0xffff + 0x10000)
		unit := float64(above - below)
		var sum, both, ups float64
		for i := range uint64(n) {
			got, other := dtype.FromBF16(round(f, 5, i)), dtype.FromBF16(round(f, 6, i))
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
		if got := round(f, 1, 9); f != math.MaxFloat32 && got != dtype.ToBF16(f) {
			t.Errorf("%v became %v", f, dtype.FromBF16(got))
		}
	}
	if f := dtype.FromBF16(round(float32(math.NaN()), 1, 2)); f == f {
		t.Errorf("NaN became %v", f)
	}
}
