package dtype

import (
	"math"
	"slices"
	"testing"
)

// eachPath runs a test with every path of this CPU.
func eachPath(t *testing.T, f func(t *testing.T)) {
	for _, p := range available() {
		t.Run(p.name, func(t *testing.T) {
			defer func(old path) { active = old }(active)
			active = p
			f(t)
		})
	}
}

// Conversions of runs are those of single numbers, for all halves and for numbers between
// them, at any address; NaNs only have to stay NaNs.
func TestRuns(t *testing.T) {
	bits := make([]uint16, 1<<16+7)
	for i := range bits {
		bits[i] = uint16(i)
	}
	eachPath(t, func(t *testing.T) {
		wide, narrowed := make([]float32, len(bits)), make([]uint16, len(bits))
		for typ, c := range map[Type]struct {
			one  func(uint16) float32
			back func(float32) uint16
		}{BF16: {FromBF16, ToBF16}, F16: {FromF16, ToF16}} {
			typ.Widen(wide, bits)
			for i, b := range bits {
				if want := c.one(b); wide[i] != want && want == want || (wide[i] != wide[i]) != (want != want) {
					t.Fatalf("%v %#04x widens to %v, want %v", typ, b, wide[i], want)
				}
			}
			for i := range wide { // between the representable numbers
				wide[i] = math.Float32frombits(math.Float32bits(wide[i]) + uint32(i*2654435761>>19&0x1fff))
			}
			for name, narrow := range map[string]func([]uint16, []float32){"Narrow": typ.Narrow, "NarrowAway": typ.NarrowNonTemporal} {
				narrow(narrowed, wide)
				for i, v := range wide {
					if want := c.back(v); narrowed[i] != want {
						t.Fatalf("%s: %v of %v (%#x) is %#04x, want %#04x", name, typ, v, math.Float32bits(v), narrowed[i], want)
					}
				}
			}
		}
	})
}

// What is written past the caches goes where it should, wherever that begins and however
// long it is, and nowhere else.
func TestAwayAnywhere(t *testing.T) {
	const guard = 0xabcd
	wide := make([]float32, 100)
	for i := range wide {
		wide[i] = float32(i + 1)
	}
	eachPath(t, func(t *testing.T) {
		for _, typ := range []Type{BF16, F16} {
			for from := range 40 {
				for _, n := range []int{0, 1, 15, 16, 17, 31, 32, 50, 60} {
					room := make([]uint16, len(wide)+2)
					for i := range room {
						room[i] = guard
					}
					typ.NarrowNonTemporal(room[from:from+n], wide[:n])
					want := make([]uint16, n)
					typ.Narrow(want, wide[:n])
					if !slices.Equal(room[from:from+n], want) || slices.ContainsFunc(append(room[:from:from], room[from+n:]...), func(x uint16) bool { return x != guard }) {
						t.Fatalf("%v: %d elements from %d on: %x", typ, n, from, room)
					}
				}
			}
		}
	})
}

// Bytes are elements in order, also at an odd address, and nothing around them is touched.
func TestEncodeAnywhere(t *testing.T) {
	numbers := []float32{1, -2, 0.5, 3, 1e-3, -7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}
	eachPath(t, func(t *testing.T) {
		for _, typ := range Plain {
			n := int(typ.Bytes(int64(len(numbers))))
			b := make([]byte, n+2)
			b[0], b[n+1] = 0xaa, 0xbb
			typ.Encode(b[1:n+1], numbers)
			width := n / len(numbers)
			if last := b[n-1 : n+1]; b[0] != 0xaa || b[n+1] != 0xbb || width == 2 && typ.one(last) != 18 {
				t.Errorf("%v: %x", typ, b)
			}
			got := make([]float32, len(numbers))
			typ.Decode(got, b[1:])
			for i, f := range numbers {
				if math.Abs(float64(got[i]-f)) > 1e-2*math.Abs(float64(f)) {
					t.Errorf("%v: element %d is %v, want %v", typ, i, got[i], f)
				}
			}
		}
	})
}

// one reads a single half by its definition: the first byte is the lower one.
func (t Type) one(b []byte) float32 {
	bits := uint16(b[0]) | uint16(b[1])<<8
	if t == BF16 {
		return FromBF16(bits)
	}
	return FromF16(bits)
}
