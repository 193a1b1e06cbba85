package optim

import (
	"fmt"
	"math"
)

// SumSquares is the sum of squares of a gradient in float64. The product of two
// float32 is exact there, and the sum of a billion of them is right to ten digits,
// whatever order it is made in.
func SumSquares(g []float32) float64 {
	var sum float64
	for _, v := range g {
		sum += float64(v) * float64(v)
	}
	return sum
}

// GlobalNorm is the norm of all gradients together, from the sum of squares of
// each, added in the order given.
func GlobalNorm(sums ...float64) float64 {
	var total float64
	for _, s := range sums {
		total += s
	}
	return math.Sqrt(total)
}

// clipEps is what PyTorch adds to the norm it divides by.
const clipEps = 1e-6

// Clip is the factor that brings gradients of this global norm down to the limit:
// limit/(norm + 1e-6), at most 1. A limit of 0 clips nothing.
func Clip(norm, limit float64) (float32, error) {
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return 0, fmt.Errorf("clipping gradients to a norm of %v: their norm is %v; lower the learning rate, lengthen the warm-up, or look for bad data", limit, norm)
	}
	if norm < 0 || !(limit >= 0) {
		return 0, fmt.Errorf("clipping gradients of norm %v to %v: neither can be negative", norm, limit)
	}
	if limit == 0 {
		return 1, nil
	}
	return float32(min(limit/(norm+clipEps), 1)), nil
}
