package dtype

import "math"

// FromF8E4M3 widens an 8-bit float with 4 bits of exponent: from 2^-9 to 448, without
// infinities, and NaN where all seven bits are set.
func FromF8E4M3(b uint8) float32 { return e4m3.from(b) }

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
		return sign | uint8(min((size+half)>>unitBits-fromBias, uint32(e4m3.over)))
	}
	return e4m3.to(f)
}

// f8 describes an 8-bit float.
type f8 struct {
	fraction int   // bits
	bias     int   // of the exponent
	over     uint8 // what too large numbers become
	nan      uint8
}

var e4m3 = f8{fraction: 3, bias: 7, over: 0x7e, nan: 0x7f}

// to finds the step between numbers at f's exponent and rounds to a multiple of it.
// A magnitude of q steps is the code q, counted on from the exponents below; a carry
// into the next exponent needs no care.
func (t f8) to(f float32) uint8 {
	sign := uint8(math.Float32bits(f)>>24) & 0x80
	if f != f {
		return sign | t.nan
	}
	size := math.Abs(float64(f))
	switch {
	case size == 0:
		return sign
	case size > math.MaxUint16:
		return sign | t.over
	}
	least := 1 - t.bias // exponent of the smallest normal number, and of all below
	_, exp := math.Frexp(size)
	exp = max(exp-1, least)
	q := math.RoundToEven(math.Ldexp(size, t.fraction-exp))
	code := (exp-least)<<t.fraction + int(q)
	return sign | uint8(min(code, int(t.over)))
}

func (t f8) from(b uint8) float32 {
	if b&0x7f == t.nan {
		return float32(math.NaN())
	}
	exp, fraction := int(b&0x7f)>>t.fraction, int(b)&(1<<t.fraction-1)
	if exp > 0 {
		fraction, exp = fraction+1<<t.fraction, exp-1
	}
	size := math.Ldexp(float64(fraction), exp+1-t.bias-t.fraction)
	return float32(math.Copysign(size, float64(int8(b))))
}
