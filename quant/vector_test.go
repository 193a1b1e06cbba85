package quant

import (
	"bytes"
	"fmt"
	"math"
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

// hard numbers have the absmax 1, so that they are not scaled: middles between values and
// the floats next to them, zeros of both signs, and numbers of all sizes.
func hard(values []float32, n int, seed uint64) []float32 {
	x := random(n, seed)
	small := random(n, seed+1)
	for i := range x {
		k := i / 6 % (len(values) - 1)
		middle := (values[k] + values[k+1]) / 2
		switch i % 6 {
		case 0:
			x[i] = middle
		case 1:
			x[i] = math.Nextafter32(middle, 2)
		case 2:
			x[i] = math.Nextafter32(middle, -2)
		case 3:
			x[i] = float32(math.Copysign(0, float64(small[i])))
		case 4:
			x[i] = float32(math.Copysign(math.Pow(10, -45*math.Abs(math.Mod(float64(small[i]), 1))), float64(x[i])))
		default:
			x[i] = float32(math.Mod(float64(x[i]), 1))
		}
	}
	if n > 0 {
		x[n-1] = 1
	}
	return x
}

// ascending are the values of a 4-bit code in order.
func (f *FourBit) ascending() []float32 {
	values := make([]float32, 16)
	for place, c := range f.encoder.codes {
		values[place] = f.Values[c]
	}
	return values
}

func TestFastFormsAreThePlainOnes(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for n := range 200 {
			x := random(n, uint64(n))
			for _, block := range []int{2, 64, 128} {
				for name, f := range map[string]*FourBit{"nf4": FourBitOf(NF4), "fp4": FourBitOf(FP4)} {
					if err := f.holds(x, block); err != nil {
						t.Fatalf("%s of %d numbers in blocks of %d: %v", name, n, block, err)
					}
				}
			}
			fast, plain := make([]byte, n), make([]byte, n)
			Signed.Encode(fast, x, AbsMax(x))
			Signed.encodePlain(plain, x, AbsMax(x))
			if !bytes.Equal(fast, plain) {
				t.Fatalf("dynamic codes of %d numbers differ", n)
			}
		}
	})
}

// holds compares the fast forms of a code with the plain ones.
func (f *FourBit) holds(x []float32, block int) error {
	n, blocks := len(x), ceil(len(x), block)
	fast, plain := make([]byte, ceil(n, 2)), make([]byte, ceil(n, 2))
	max1, max2 := make([]float32, blocks), make([]float32, blocks)
	f.Encode(fast, max1, x, block)
	f.encodePlain(plain, max2, x, block)
	if !bytes.Equal(fast, plain) {
		return fmt.Errorf("codes differ")
	}
	got, want := make([]float32, n), make([]float32, n)
	f.Decode(got, fast, max1, block)
	f.decodePlain(want, plain, max2, block)
	return sameBits(got, want)
}

// Whole blocks of numbers that are hard to tell apart, and blocks that are zero, tiny,
// huge or all the same.
func TestHardBlocks(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for name, f := range map[string]*FourBit{"nf4": FourBitOf(NF4), "fp4": FourBitOf(FP4)} {
			for seed := range uint64(60) {
				x := hard(f.ascending(), FourBitBlock, seed)
				for _, scale := range []float32{1, 0, 1e-38, 1e-45, 3e38} {
					scaled := make([]float32, 3*len(x))
					for i := range scaled {
						scaled[i] = x[(i+int(seed))%len(x)] * scale
					}
					if err := f.holds(scaled, FourBitBlock); err != nil {
						t.Fatalf("%s, numbers %d times %v: %v", name, seed, scale, err)
					}
				}
			}
		}
	})
}

// Codes of states follow their definition: the nearest value, the lower of two, and never
// that of zero for what is not.
func TestStateCodesByTheirDefinition(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for name, d := range map[string]*Dynamic{"signed": Signed, "unsigned": Unsigned} {
			for _, n := range []int{0, 1, 15, 16, 17, 255, 256, 4096} {
				x := hard(d.Values[:], n, uint64(n))
				got, want := make([]byte, n), make([]byte, n)
				absmax := d.EncodeState(got, x)
				d.encodePlain(want, x, absmax)
				for i, c := range want {
					switch {
					case c == d.zero && x[i] > 0:
						want[i]++
					case c == d.zero && x[i] < 0 && d == Signed:
						want[i]--
					}
				}
				if n > 0 && absmax != 1 || !bytes.Equal(got, want) {
					t.Fatalf("%s: %d codes differ, or the absmax %v", name, n, absmax)
				}
			}
		}
	})
}

func TestRowsAreTheirPlainForm(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for n := 1; n < 100; n++ {
			row := random(n, uint64(n))
			want, absmax := make([]int8, n), make([]float32, 1)
			rows8(want, absmax, row, n)
			got := make([]byte, n)
			scale, err := encodeRowI8(got, row)
			if err != nil || scale != absmax[0] || !bytes.Equal(got, unsigned(want)) {
				t.Fatalf("%d numbers: scale %v, want %v, or the codes differ (%v)", n, scale, absmax[0], err)
			}
		}
	})
}

func TestAbsMaxShowsNaN(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for at := range 40 {
			x := random(40, 1)
			x[at] = -1000
			if got := AbsMax(x); got != 1000 {
				t.Errorf("with -1000 at %d it is %v", at, got)
			}
			x[at] = float32(math.Inf(-1))
			if got := AbsMax(x); !math.IsInf(float64(got), 1) {
				t.Errorf("with an infinity at %d it is %v", at, got)
			}
			x[at] = float32(math.NaN())
			if got := AbsMax(x); got == got {
				t.Errorf("with a NaN at %d it is %v", at, got)
			}
		}
	})
}
