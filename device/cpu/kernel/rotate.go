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
	turn, n := factor, len(freq)&^(lanesMost-1)
	if inverse {
		turn = -factor
	}
	cos, sin = cos[:len(freq)], sin[:len(freq)]
	active.angles(cos[:n], sin[:n], freq[:n], float32(position), factor, turn)
	anglesGo(cos[n:], sin[n:], freq[n:], float32(position), factor, turn)
}

func anglesGo(cos, sin, freq []float32, position float32, cosTimes, sinTimes float64) {
	for i, f := range freq {
		s, c := math.Sincos(float64(position * f))
		cos[i], sin[i] = float32(c*cosTimes), float32(s*sinTimes)
	}
}
