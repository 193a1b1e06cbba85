package kernel

import "math"

// Steps of optimizers are the same bits on every path, and on GPUs: products and sums
// are rounded as written, float32(x·y) apart and fma together, roots and quotients to the
// nearest. Only which NaN it is where there is one is left open.

// flush is x, or zero of its sign unless x has some of the bits given: those of the exponent
// for what is below the normal numbers, all of them for nothing at all.
//
// Moments without a gradient decay to below the normal numbers, but not to zero: 0.9 times
// 4·2^-149 rounds back to that. A CPU takes many times as long for such numbers; so
// where they would be kept they become zero, before anything is made of them.
func flush(x float32, unless uint32) float32 {
	if bits := math.Float32bits(x); bits&unless == 0 {
		return math.Float32frombits(bits & (1 << 31))
	}
	return x
}

// unless are the bits for flush.
func unless(flush bool) uint32 {
	if flush {
		return 0xff << 23
	}
	return math.MaxUint32
}
