package kernel

import (
	"math"
	"testing"

	"spillway/quant"
)

// Every path gives the bits of package quant, for all codes.
func TestDynamic(t *testing.T) {
	eachPath(t, func(t *testing.T) {
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
			}
		}
	})
}

func sameFloats(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
