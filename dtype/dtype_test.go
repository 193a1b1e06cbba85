package dtype

import (
	"math"
	"math/big"
	"testing"
)

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		t       Type
		n, want int64
	}{{F32, 3, 12}, {BF16, 3, 6}, {Bool, 9, 9}} {
		if got := c.t.Bytes(c.n); got != c.want {
			t.Errorf("%v.Bytes(%d) = %d, want %d", c.t, c.n, got, c.want)
		}
	}
}

func TestParseKnowsEveryName(t *testing.T) {
	for ty := F64; int(ty) < len(types); ty++ {
		for _, name := range []string{ty.String(), ty.Safetensors(), ty.Torch()} {
			if name == "" {
				continue
			}
			if got, err := Parse(name); err != nil || got != ty {
				t.Errorf("Parse(%q) = %v, %v", name, got, err)
			}
		}
	}
	for _, bad := range []string{"", "f31", "invalid"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) accepted", bad)
		}
	}
}

// Every 16-bit pattern must survive the round trip, and rounding must pick the
// nearest representable value: checked against exact rational arithmetic.
func TestSixteenBitRoundTrip(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		if f := FromF16(h); f == f && ToF16(f) != h {
			t.Fatalf("f16 %#04x -> %v -> %#04x", h, f, ToF16(f))
		}
		if f := FromBF16(h); f == f && ToBF16(f) != h {
			t.Fatalf("bf16 %#04x -> %v -> %#04x", h, f, ToBF16(f))
		}
	}
}

func TestRoundingIsNearestEven(t *testing.T) {
	check := func(name string, narrow func(float32) uint16, widen func(uint16) float32, lo, hi uint16) {
		for h := lo; h < hi; h++ {
			a, b := float64(widen(h)), float64(widen(h+1))
			mid := float32((a + b) / 2) // exact: one more bit than a and b
			if got := narrow(mid); got != h+h&1 {
				t.Fatalf("%s: the middle of %#04x and its neighbour rounds to %#04x, want the even one", name, h, got)
			}
			below, above := math.Nextafter32(mid, 0), math.Nextafter32(mid, math.MaxFloat32)
			if narrow(below) != h || narrow(above) != h+1 {
				t.Fatalf("%s: next to the midpoint of %#04x: %#04x and %#04x", name, h, narrow(below), narrow(above))
			}
		}
	}
	check("f16", ToF16, FromF16, 0, 0x7bff)
	check("bf16", ToBF16, FromBF16, 0x80, 0x7f7f)
	if ToF16(65519.99) != 0x7bff || ToF16(65520) != 0x7c00 || ToF16(float32(math.Inf(-1))) != 0xfc00 {
		t.Error("f16 overflow boundary is 65520")
	}
	nan := float32(math.NaN())
	if v := FromF16(ToF16(nan)); v == v {
		t.Error("f16 lost a NaN")
	}
	if v := FromBF16(ToBF16(nan)); v == v {
		t.Error("bf16 lost a NaN")
	}
	if new(big.Float).SetFloat64(float64(FromF16(1))).Cmp(big.NewFloat(math.Ldexp(1, -24))) != 0 {
		t.Error("the smallest f16 is 2^-24")
	}
}
