//go:build !arm64

package kernel

import "math"

// fma is x·y + z, rounded once. The product is exact in double precision; a sum that is
// not takes the neighbour with an odd last bit, which the second rounding cannot mistake
// for a tie.
func fma(x, y, z float32) float32 {
	p, q := float64(x)*float64(y), float64(z)
	sum := p + q
	part := sum - p
	lost := (p - (sum - part)) + (q - part)
	if bits := math.Float64bits(sum); lost > 0 || lost < 0 { // not so of what is infinite or no number
		if bits&1 == 0 && (lost > 0) == (sum > 0) {
			sum = math.Float64frombits(bits + 1)
		} else if bits&1 == 0 {
			sum = math.Float64frombits(bits - 1)
		}
	}
	return float32(sum)
}
