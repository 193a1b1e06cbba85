//go:build !arm64

package dtype

import "math"

// FMA is x·y + z in f32, rounded once, on every CPU. The product is exact in double precision; a sum that is
// not takes the neighbour with an odd last bit, which the second rounding cannot mistake
// for a tie.
func FMA(x, y, z float32) float32 {
	p, q := float64(x)*float64(y), float64(z)
	sum := p + q
	part := sum - p
	lost := (p - (sum - part)) + (q - part)
	if bits := math.Float64bits(sum); lost > 0 || lost < 0 { // false for infinities and NaN
		if bits&1 == 0 && (lost > 0) == (sum > 0) {
			sum = math.Float64frombits(bits + 1)
		} else if bits&1 == 0 {
			sum = math.Float64frombits(bits - 1)
		}
	}
	return float32(sum)
}
