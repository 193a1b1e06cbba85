package dtype

import (
	"math"
	"testing"
)

// Rounding must pick the nearest number, and of two the even one: between every two
// neighbours, at their midpoint and next to it.
func TestF8RoundsToNearestEven(t *testing.T) {
	for name, c := range map[string]struct {
		narrow func(float32) uint8
		widen  func(uint8) float32
		most   uint8 // code of the largest finite number
	}{"e4m3": {ToF8E4M3, FromF8E4M3, 0x7e}} {
		for b := range c.most {
			mid := (c.widen(b) + c.widen(b+1)) / 2 // exact: one more bit
			below, above := math.Nextafter32(mid, 0), math.Nextafter32(mid, math.MaxFloat32)
			if got := c.narrow(mid); got != b+b&1 || c.narrow(below) != b || c.narrow(above) != b+1 {
				t.Errorf("%s: the middle of %#02x and its neighbour gives %#02x, next to it %#02x and %#02x", name, b, got, c.narrow(below), c.narrow(above))
			}
			if c.narrow(-c.widen(b)) != b|0x80 || c.widen(b|0x80) != -c.widen(b) {
				t.Errorf("%s: %#02x does not keep its sign", name, b)
			}
		}
	}
}

// The ends of the range, as its definition and PyTorch have them.
func TestF8Ends(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	if FromF8E4M3(0x7e) != 448 || FromF8E4M3(1) != 1.0/512 {
		t.Error("the largest and smallest numbers are 448 and 2^-9")
	}
	for f, want := range map[float32]uint8{464: 0x7e, 464.1: 0x7e, -1000: 0xfe, inf: 0x7e, 1e30: 0x7e} {
		if got := ToF8E4M3(f); got != want {
			t.Errorf("e4m3 of %v is %#02x, want %#02x", f, got, want)
		}
	}
	for _, v := range []float32{FromF8E4M3(0x7f), FromF8E4M3(0xff), FromF8E4M3(ToF8E4M3(nan))} {
		if v == v {
			t.Errorf("%v should not be a number", v)
		}
	}
}

// The quick way gives what the definition gives, for numbers of all sizes.
func TestQuickE4M3(t *testing.T) {
	for bits := uint32(0); bits < 0xff000000; bits += 9973 {
		f := math.Float32frombits(bits)
		if got, want := ToF8E4M3(f), plainF8(f); got != want {
			t.Fatalf("%v (%#x) is %#02x, want %#02x", f, bits, got, want)
		}
	}
}

// plainF8 finds the step between numbers at f's exponent and rounds to a multiple of it. A
// magnitude of q steps is the code q, counted on from the exponents below; a carry into the
// next exponent needs no care.
func plainF8(f float32) uint8 {
	const fractionBits, bias, over, nan = 3, 7, 0x7e, 0x7f
	sign, size := uint8(math.Float32bits(f)>>24)&0x80, math.Abs(float64(f))
	switch {
	case f != f:
		return sign | nan
	case size == 0:
		return sign
	case size > math.MaxUint16:
		return sign | over
	}
	least := 1 - bias // exponent of the smallest normal number, and of all below
	_, exp := math.Frexp(size)
	exp = max(exp-1, least)
	q := math.RoundToEven(math.Ldexp(size, fractionBits-exp))
	return sign | uint8(min((exp-least)<<fractionBits+int(q), over))
}
