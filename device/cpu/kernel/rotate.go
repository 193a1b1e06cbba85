package kernel

import (
	"math"
)

// Rotate rotates the heads of a row, which lie side by side: of each head the pairs (i, i+n) of its first 2n elements,
// n being the length of cos and sin, which are those of the pairs' angles:
//
//	y(i) = x(i)·cos(i) - x(i+n)·sin(i)     y(i+n) = x(i+n)·cos(i) + x(i)·sin(i)
//
// The rest of a head is copied. y may be x.
func Rotate(y, x, cos, sin []float32, heads int) {
	n, width := len(cos), len(x)/heads
	if n > 0 {
		active.rotate(y[:len(x)], x, cos, sin[:n], heads, width)
	}
	for i := 2 * n; i < len(x) && 2*n < width; i += width {
		copy(y[i:i+width-2*n], x[i:])
	}
}

func rotateGo(y, x, cos, sin []float32, heads, width int) {
	for i := 0; i < heads*width; i += width {
		lo, hi := y[i:], y[i+len(cos):]
		xLo, xHi := x[i:], x[i+len(cos):]
		for k, c := range cos {
			a, b := xLo[k], xHi[k]
			lo[k], hi[k] = a*c-b*sin[k], b*c+a*sin[k]
		}
	}
}

// Angles fills cos and sin of position·freq, times factor. The angle is a float32 product: models were trained with that.
// Inverse angles turn back.
func Angles(cos, sin, freq []float32, position int32, factor float64, inverse bool) {
	sign := factor
	if inverse {
		sign = -factor
	}
	for i, f := range freq {
		s, c := sincos(float64(float32(position) * f))
		cos[i], sin[i] = float32(c*factor), float32(s*sign)
	}
}

// Pi/2 as a number of 33 bits, of which multiples up to 2^20 are exact, and the rest.
const (
	quarterHi = 1.57079632673412561417
	quarterLo = math.Pi/2 - quarterHi
	mostExact = 1 << 20
)

// sincos is math.Sincos within 1e-13, three times as fast: what rounding to float32 leaves is the same. The angle is
// brought to ±π/4, where few terms of the series of both are enough.
func sincos(x float64) (sin, cos float64) {
	if !(math.Abs(x) < mostExact) {
		return math.Sincos(x)
	}
	n := int64(x*(2/math.Pi) + math.Copysign(0.5, x))
	r := x - float64(n)*quarterHi - float64(n)*quarterLo
	z := r * r
	of := [2]float64{
		r + r*z*(-1./6+z*(1./120+z*(-1./5040+z*(1./362880+z*(-1./39916800+z*(1./6227020800)))))),
		1 + z*(-1./2+z*(1./24+z*(-1./720+z*(1./40320+z*(-1./3628800+z*(1./479001600+z*(-1./87178291200))))))),
	}
	// Each quarter of a turn swaps both, and changes the sign of one: cos, sin, cos and so on.
	return signed(of[n&1], uint64(n)>>1), signed(of[(n+1)&1], uint64(n+1)>>1)
}

// signed is x, or -x where flips is odd.
func signed(x float64, flips uint64) float64 {
	return math.Float64frombits(math.Float64bits(x) ^ flips<<63)
}
