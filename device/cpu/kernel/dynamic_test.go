package kernel

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"spillway/quant"
)

// Every path gives the bits of package quant, for all codes, for numbers of all sizes,
// beside the middles between values, and for zeros of both signs.
func TestDynamic(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for name, code := range map[string]*quant.Dynamic{"signed": quant.Signed, "unsigned": quant.Unsigned} {
			for _, n := range []int{0, 1, 15, 16, 17, 255, 256, 4096} {
				codes := make([]byte, n)
				for i := range codes {
					codes[i] = byte(i)
				}
				want := make([]float32, n)
				code.Decode(want, codes, 0.3)
				got, check := guarded(t, n)
				DecodeDynamic(got, codes, 0.3, code)
				sameFloats(t, name+" values", got, want)
				check()
				if most := Largest(want); n > 0 && most != slices.Max(want) && most != -slices.Min(want) {
					t.Fatalf("%s: the largest of %d is %v", name, n, most)
				}

				x := dynamicNumbers(rng.Float64, code, n)
				wantCodes := make([]byte, n)
				wantMax := code.EncodeState(wantCodes, x)
				if most := EncodeDynamic(codes, x, code); most != wantMax || !bytes.Equal(codes, wantCodes) {
					t.Fatalf("%s: %d codes differ, or the absmax %v from %v", name, n, most, wantMax)
				}
			}
		}
	})
}

func TestLargestShowsWhatIsNoNumber(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for at := range 40 {
			x := make([]float32, 40)
			x[at] = float32(math.Inf(-1))
			if got := Largest(x); !math.IsInf(float64(got), 1) {
				t.Errorf("with an infinity at %d it is %v", at, got)
			}
			x[at] = float32(math.NaN())
			if got := Largest(x); got == got {
				t.Errorf("with a NaN at %d it is %v", at, got)
			}
		}
	})
}

// dynamicNumbers are hard ones: the absmax is 1, so that they are not scaled.
func dynamicNumbers(random func() float64, code *quant.Dynamic, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		middle := (code.Values[i%255] + code.Values[i%255+1]) / 2
		switch i % 6 {
		case 0:
			x[i] = middle
		case 1:
			x[i] = math.Nextafter32(middle, 1)
		case 2:
			x[i] = math.Nextafter32(middle, -1)
		case 3:
			x[i] = float32(math.Copysign(0, random()-0.5))
		case 4:
			x[i] = float32((2*random() - 1) * math.Pow(10, -40*random()))
		default:
			x[i] = float32(2*random() - 1)
		}
	}
	if n > 0 {
		x[n-1] = 1
	}
	return x
}

func sameFloats(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
