package kernel

import (
	"math"
	"slices"
	"testing"

	"spillway/dtype"
)

// Sums in any order are near those in order, for all numbers of rows and columns, with what is added;
// a row has the same bits whatever rows are computed with it, and however many workers there are.
func TestDots(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	rng := newRand()
	for _, of := range []dtype.Type{dtype.BF16, dtype.F16} {
		if dotsOf(of) == nil {
			t.Skip("this CPU has no such kernel")
		}
		for _, size := range [][2]int{{4, 32}, {5, 64}, {33, 96}, {130, 4096}, {7, 32}} {
			var alone []float32
			for m := 1; m <= dotsM; m++ {
				g := newGemm(rng, m, size[0], size[1], 0)
				g.A = Matrix{Data: random(rng, m*size[1]), Step: size[1]}
				plain := Matrix{Data: random(rng, size[0]*size[1]), Step: size[1], Transposed: true}
				codes, wide := narrowed(plain, of)
				switch m % 4 {
				case 1:
					g.Bias = random(rng, g.N)
				case 2:
					g.Plus = random(rng, len(g.C))
				case 3:
					g.Accumulate = true
				}
				before := slices.Clone(g.C)
				g.B, g.Work = wide, nil
				g.Work = make([]float32, g.Workspace(3))
				g.Run(three)
				want := slices.Clone(g.C)
				g.B, g.AnyOrder = codes, true
				if _, ok := g.asDots(); !ok {
					t.Fatalf("%d × %d × %d is not computed by dots", m, size[0], size[1])
				}
				for _, p := range []*Pool{one, three} {
					copy(g.C, before)
					g.Run(p)
					for i := range m {
						for j := range g.N {
							got, want := float64(g.C[i*g.CStep+j]), float64(want[i*g.CStep+j])
							if math.Abs(got-want) > 1e-4*math.Sqrt(float64(g.K)) {
								t.Fatalf("%v, %d × %d × %d: %v at %d %d, want %v", of, m, size[0], size[1], got, i, j, want)
							}
						}
					}
				}
				if m > 1 { // its first row alone
					whole := slices.Clone(g.C[:g.N])
					copy(g.C, before)
					g.M = 1
					g.Run(one)
					if alone = g.C[:g.N]; !slices.Equal(alone, whole) {
						t.Fatalf("%v: a row alone has other bits than among %d", of, m)
					}
				}
			}
		}
	}
}
