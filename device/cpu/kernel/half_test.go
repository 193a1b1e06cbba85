package kernel

import (
	"math"
	"slices"
	"testing"

	"spillway/dtype"
)

// narrowed is a matrix with elements of a 16-bit type, and the same in f32.
func narrowed(m Matrix, of dtype.Type) (codes, wide Matrix) {
	codes, wide = m, m
	codes.Data, codes.Type, codes.Codes = nil, of, make([]uint16, len(m.Data))
	of.Narrow(codes.Codes, m.Data)
	wide.Data = make([]float32, len(m.Data))
	of.Widen(wide.Data, codes.Codes)
	return codes, wide
}

// A matmul with a weight in 16 bits has the bits of one with the same weight in f32: on all
// paths, for all numbers of rows, storage orders and sizes, with one worker and with three.
func TestNarrowWeightsHaveTheBitsOfWideOnes(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	// Columns and depths: partial panels and groups, one slab and several, of unequal length.
	sizes := [][2]int{{1, 1}, {16, 8}, {33, 130}, {65, 64}, {49, 520}, {71, 1096}, {130, 1536}, {97, 77}}
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for i, s := range sizes {
			for _, m := range []int{1, 2, 3, 4, 5, 8, 48, 49, 200} {
				if m > 8 && s[1] > 600 {
					continue
				}
				for mode := range 8 {
					for _, of := range []dtype.Type{dtype.BF16, dtype.F16} {
						g := newGemm(rng, m, s[0], s[1], mode)
						switch i % 4 {
						case 0:
							g.Accumulate = true
						case 1:
							g.Bias = random(rng, g.N)
						case 2:
							g.Plus = random(rng, len(g.C))
						}
						sameAsWide(t, g, of, one, three)
					}
				}
			}
		}
	})
}

// sameAsWide computes a product with its right operand in 16 bits and in f32.
func sameAsWide(t *testing.T, g *Gemm, of dtype.Type, one, three *Pool) {
	t.Helper()
	before := slices.Clone(g.C)
	codes, wide := narrowed(g.B, of)
	g.B = wide
	g.Work = make([]float32, g.Workspace(3))
	g.Run(three)
	for _, pool := range []*Pool{one, three} {
		n := *g
		n.B, n.C = codes, slices.Clone(before)
		n.Work = make([]float32, n.Workspace(pool.Workers()))
		n.Run(pool)
		for i, v := range n.C {
			if math.Float32bits(v) != math.Float32bits(g.C[i]) {
				t.Fatalf("%v %dx%dx%d, A transposed %v, B transposed %v, %d workers: element %d is %v, in f32 %v",
					of, g.M, g.N, g.K, g.A.Transposed, g.B.Transposed, pool.Workers(), i, v, g.C[i])
			}
		}
	}
}

// A matmul with interleaved weights has the bits of one with the same weights as they are: on all
// paths and for all numbers of rows, with one worker and with three.
func TestInterleavedWeightsHaveTheBitsOfPlainOnes(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for _, s := range [][2]int{{32, 8}, {64, 8}, {160, 136}, {96, 1096}, {352, 1536}} {
			for _, m := range []int{1, 2, 3, 4, 5, 8, 12, 13, 48, 49, 100} {
				for _, of := range []dtype.Type{dtype.BF16, dtype.F16} {
					g := newGemm(rng, m, s[0], s[1], 2)
					if m%2 == 0 {
						g.Bias = random(rng, g.N)
					}
					g.B, _ = narrowed(g.B, of)
					if !g.B.Transposed || g.A.Transposed || g.B.Step != g.K {
						t.Fatal("the weight is stored otherwise than this test wants it")
					}
					g.Work = make([]float32, g.Workspace(3))
					g.Run(three)
					h := active.half(of)
					for _, pool := range []*Pool{one, three} {
						n := *g
						n.B.Interleaved, n.B.Codes, n.C = true, make([]uint16, len(g.B.Codes)), make([]float32, len(g.C))
						for i, c := range g.B.Codes {
							row, col := i/g.K, i%g.K
							n.B.Codes[row/32*32*g.K+h.interleavedAt(col, row%32)] = c
						}
						n.Work = make([]float32, n.Workspace(pool.Workers()))
						n.Run(pool)
						if !slices.Equal(n.C, g.C) {
							t.Fatalf("%v %dx%dx%d, %d workers: other bits", of, g.M, g.N, g.K, pool.Workers())
						}
					}
				}
			}
		}
	})
}
