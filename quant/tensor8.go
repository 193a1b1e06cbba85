package quant

import "math"

// Tensor8 codes numbers with one scale for all of them, as the torch-optstate library
// keeps moments: s = absmax/127, and each number is a whole multiple of s. What is below
// s/2 becomes zero, so of numbers that span decades only the largest two survive; blocks
// of Dyn8 keep seven decades each. It is here to be compared with.
func Tensor8(dst []int8, src []float32) (s float32) {
	s = Largest(src) / 127
	if s == 0 {
		s = 1
	}
	for i, x := range src {
		q := math.RoundToEven(float64(x / s))
		dst[i] = int8(max(-127, min(127, q)))
	}
	return s
}

// FromTensor8 is the inverse.
func FromTensor8(dst []float32, codes []int8, s float32) {
	for i, c := range codes {
		dst[i] = float32(c) * s
	}
}
