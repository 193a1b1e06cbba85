package dtype

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// FMA is the exact result rounded once, as the arithmetic of any precision finds it.
func TestFMA(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(x, y, z float32) {
		product := new(big.Float).SetPrec(2000).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		want, _ := product.Add(product, big.NewFloat(float64(z))).Float32()
		if got := FMA(x, y, z); got != want {
			t.Fatalf("FMA(%x, %x, %x) is %x, want %x", x, y, z, got, want)
		}
	}
	// Sums that a second rounding takes for a tie, of both signs.
	for _, z := range []float32{0x1p-60, -0x1p-60, 0x1p-149, -0x1p-149} {
		check(1+0x1p-12, 1+0x1p-12, z)
		check(-1-0x1p-12, 1+0x1p-12, z)
		check(0x1.000002p0, 0x1.8p0, z)
	}
	for range 200_000 {
		x, y := math.Float32frombits(rng.Uint32()), float32(rng.NormFloat64())
		z := float32(float64(x)*float64(y)) * float32(math.Ldexp(rng.NormFloat64(), rng.IntN(60)-30))
		if finite := x*y + z; finite-finite != 0 {
			continue
		}
		check(x, y, z)
	}
}
