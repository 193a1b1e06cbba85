package kernel

import (
	"testing"

	"spillway/quant"
)

// Every path gives the bits of package quant, for all codes, tails included.
func TestFourBit(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, n := range []int{0, 1, 2, 63, 64, 65, 128, 515, 4096} {
			codes, absmax := make([]byte, (n+1)/2), random(rng, (n+63)/64)
			for i := range codes {
				codes[i] = byte(i)
			}
			for name, code := range map[string]*quant.FourBit{"nf4": quant.FourBitOf(quant.NF4), "fp4": quant.FourBitOf(quant.FP4)} {
				want := make([]float32, n)
				code.Decode(want, codes, absmax, quant.FourBitBlock)
				got, check := guarded(t, n)
				DecodeFourBit(got, codes, absmax, code)
				sameFloats(t, name, got, want)
				check()
			}
		}
	})
}
