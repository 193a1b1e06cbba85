package quant

import (
	"math"

	"spillway/dtype"
)

// Rows8 codes a matrix row by row, as LLM.int8 keeps weights: each row has its absmax,
// and elements are whole 127ths of it. Elements are rounded to f16 first, which is the
// precision the format is defined on; cols is the length of a row.
func Rows8(dst []int8, absmax, src []float32, cols int) {
	for r := range absmax {
		row := src[r*cols : (r+1)*cols]
		most := dtype.FromF16(dtype.ToF16(absmaxOf(row)))
		absmax[r] = most
		factor := float32(0)
		if most > 0 {
			factor = 1 / most * 127 // in this order, as PyTorch divides a constant
		}
		for i, x := range row {
			half := dtype.FromF16(dtype.ToF16(x))
			dst[r*cols+i] = int8(math.RoundToEven(float64(half * factor)))
		}
	}
}

// FromRows8 is the inverse.
func FromRows8(dst []float32, codes []int8, absmax []float32, cols int) {
	const one127th = 7.874015718698502e-3 // bitsandbytes' constant
	for i, c := range codes {
		dst[i] = float32(float32(c)*absmax[i/cols]) * one127th
	}
}

// Tensor8 codes numbers with one scale for all of them, as the torch-optstate library
// keeps moments: s = absmax/127, and each number is a whole multiple of s. What is below
// s/2 becomes zero, so of numbers that span decades only the largest two survive; blocks
// of Dyn8 keep seven decades each. It is here to be compared with.
func Tensor8(dst []int8, src []float32) (s float32) {
	s = absmaxOf(src) / 127
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
