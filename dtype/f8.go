package dtype

import "math"

// FromF8E4M3 widens an 8-bit float with 4 bits of exponent: from 2^-9 to 448, without
// infinities, and NaN where all seven bits are set.
func FromF8E4M3(b uint8) float32 {
	const fractionBits, bias = 3, 7
	if b&0x7f == nanF8 {
		return float32(math.NaN())
	}
	exp, fraction := int(b&0x7f)>>fractionBits, int(b)&(1<<fractionBits-1)
	if exp > 0 {
		fraction, exp = fraction+1<<fractionBits, exp-1
	}
	size := math.Ldexp(float64(fraction), exp+1-bias-fractionBits)
	return float32(math.Copysign(size, float64(int8(b))))
}

// Codes without their sign.
const (
	nanF8  = 0x7f
	mostF8 = 0x7e // 448
)

// ToF8E4M3 rounds to nearest even; what is above 448, infinity too, becomes 448.
func ToF8E4M3(f float32) uint8 {
	const (
		normal    = (127 - 6) << 23 // the bits of the smallest number with all its fraction
		unitBits  = 20              // of a float32 that round off
		fromBias  = (127 - 7) << 3  // exponents start elsewhere
		tooLarge  = (127 + 9) << 23 // 512
		subnormal = 1 << (23 - 9)   // a float32 of this size has steps of 2^-9
	)
	bits := math.Float32bits(f)
	sign, size := uint8(bits>>24)&0x80, bits&^(1<<31)
	switch {
	case size < normal:
		return sign | uint8(math.Float32bits(math.Float32frombits(size)+subnormal))
	case size < tooLarge:
		half := uint32(1)<<(unitBits-1) - 1 + size>>unitBits&1
		return sign | uint8(min((size+half)>>unitBits-fromBias, mostF8))
	case f != f:
		return sign | nanF8
	}
	return sign | mostF8
}
