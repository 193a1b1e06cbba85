package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spillway/dtype"
	"spillway/quant"
)

var (
	packedTypes = []dtype.Type{quant.Q4_0x16, quant.Q8_0x16, quant.Q4_Kx16, quant.Q6_Kx16}
	tableTypes  = []dtype.Type{quant.NF4x16, quant.FP4x16}
)

// newPacked is a matmul of random numbers, with the weight as numbers.
func newPacked(t testing.TB, rng *rand.Rand, kind dtype.Type, m, n, k int) (g *Packed, weight []float32) {
	numbers := random(rng, n*k)
	g = &Packed{M: m, N: n, K: k, Format: PackedFormatOf(kind), X: random(rng, m*k), W: make([]byte, kind.Bytes(int64(n*k))), C: make([]float32, m*n)}
	if err := quant.Encode(kind, g.W, numbers, k); err != nil {
		t.Fatal(err)
	}
	if err := quant.Decode(kind, numbers, g.W, k); err != nil {
		t.Fatal(err)
	}
	return g, numbers
}

// A matmul of packed weights is that of the numbers they stand for, but for the rounding of
// inputs; its rows have the same bits alone and together, with one worker and with three.
func TestPackedMatmuls(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	eachPath(t, func(t *testing.T) {
		for _, kind := range slices.Concat(packedTypes, tableTypes) {
			allowed := 2e-5
			if kind == quant.NF4x16 { // of which the values are rounded too
				allowed = 2e-4
			}
			for _, s := range [][3]int{{1, 16, 256}, {1, 528, 512}, {2, 32, 256}, {13, 80, 768}, {6, 16, 2304}} {
				rng := newRand()
				g, weight := newPacked(t, rng, kind, s[0], s[1], s[2])
				if s[1] != 32 {
					g.Bias = random(rng, g.N)
				}
				g.Work = make([]float32, g.Workspace(3))
				g.Run(three)
				for i := range g.M {
					for j := range g.N {
						var sum, size float64
						if g.Bias != nil {
							sum = float64(g.Bias[j])
						}
						for p := range g.K {
							product := float64(g.X[i*g.K+p]) * float64(weight[j*g.K+p])
							sum += product
							size += math.Abs(product)
						}
						if off := math.Abs(float64(g.C[i*g.N+j]) - sum); !(off <= size*allowed) {
							t.Fatalf("%v %v: element %d, %d is %v, want %v, off by %.1e of the magnitudes", kind, s, i, j, g.C[i*g.N+j], sum, off/size)
						}
					}
				}
				for i := range g.M {
					row := *g
					row.M, row.X, row.C = 1, g.X[i*g.K:][:g.K], make([]float32, g.N)
					row.Work = make([]float32, row.Workspace(1))
					row.Run(one)
					if !slices.Equal(row.C, g.C[i*g.N:][:g.N]) {
						t.Fatalf("%v %v: row %d has other bits alone", kind, s, i)
					}
				}
			}
		}
	})
}

// Paths of vectors give the same bits: integer sums are exact, and sums of f32 fused and in the same order. Plain Go does not fuse.
func TestPackedBitsOfPaths(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	for _, kind := range slices.Concat(packedTypes, tableTypes) {
		for _, m := range []int{1, 2, 7, 31} {
			g, _ := newPacked(t, newRand(), kind, m, 48, 2816)
			g.Work = make([]float32, g.Workspace(2))
			var want []float32
			eachPath(t, func(t *testing.T) {
				if active.name == "portable" {
					return
				}
				g.Run(pool)
				if want == nil {
					want = slices.Clone(g.C)
				}
				if !slices.Equal(g.C, want) {
					t.Errorf("%v, %d rows: other bits than with AVX2", kind, m)
				}
			})
		}
	}
}

// Inputs are rounded alike on all paths: also zeros, tiny and large numbers, and those that are
// no numbers.
func TestRoundedInputs(t *testing.T) {
	rng := newRand()
	x := random(rng, 32*40)
	for b := range 20 {
		for i := range 32 {
			x[32*b+i] *= float32(math.Ldexp(1, b*13-130))
		}
	}
	clear(x[32*20 : 32*21])
	x[32*21+3] = float32(math.Inf(1))
	x[32*22+31] = float32(math.NaN())
	for i := range 32 {
		x[32*23+i] = math.MaxFloat32
		x[32*24+i] = math.Nextafter32(2, 1) // rounds up to what two signed bytes cannot hold
	}
	want, sums := make([]int16, len(x)), make([]blockSums, len(x)/32)
	roundInputsGo(&want[0], &sums[0], &x[0], len(sums), inputBits-1)
	for i, f := range x {
		b := sums[i/32]
		if most := slices.Max(abs(x[i/32*32:][:32])); i/32 != 21 && i/32 != 22 && math.Abs(float64(f)-float64(want[i])*float64(b.scale)) > float64(most)/(1<<14)+math.Ldexp(1, -126) {
			t.Fatalf("input %v is %v × %v", f, want[i], b.scale)
		}
	}
	if sums[21].scale == sums[21].scale || sums[22].scale == sums[22].scale {
		t.Error("blocks with numbers that are not finite have a scale")
	}
	eachPath(t, func(t *testing.T) {
		got, found := make([]int16, len(x)), make([]blockSums, len(sums))
		active.packed.round(&got[0], &found[0], &x[0], len(sums), inputBits-1)
		for b := range sums {
			if b == 21 || b == 22 {
				if found[b].scale == found[b].scale {
					t.Errorf("block %d has the scale %v", b, found[b].scale)
				}
				continue
			}
			if found[b] != sums[b] || !slices.Equal(got[32*b:32*b+32], want[32*b:32*b+32]) {
				t.Errorf("block %d is %v %v, plainly %v %v", b, found[b], got[32*b:32*b+32], sums[b], want[32*b:32*b+32])
			}
		}
	})
}

func abs(x []float32) []float32 {
	x = slices.Clone(x)
	for i, f := range x {
		x[i] = max(f, -f)
	}
	return x
}

// Unpacked codes and scales are the same on all paths.
func TestUnpackedWeights(t *testing.T) {
	for _, kind := range packedTypes {
		g, _ := newPacked(t, newRand(), kind, 1, 16, 512)
		f := g.Format
		unpacked := func() (pairs []int16, scales, minima []float32) {
			pairs, scales, minima = make([]int16, 512*panelN), make([]float32, 512/f.sub*panelN), make([]float32, 512/f.sub*panelN)
			active.packed.unpack[f.index](&g.W[0], &pairs[0], &scales[0], &minima[0], 512/f.block)
			return
		}
		if _, err := Choose("portable"); err != nil {
			t.Fatal(err)
		}
		pairs, scales, minima := unpacked()
		eachPath(t, func(t *testing.T) {
			p, s, m := unpacked()
			if !slices.Equal(p, pairs) || !slices.Equal(s, scales) || !slices.Equal(m, minima) {
				t.Errorf("%v is unpacked otherwise", kind)
			}
		})
	}
}

// scaleBytes are those of the scales of eight rows.
var scaleBytes = map[dtype.Type]int{quant.Q4_0x16: 16, quant.Q8_0x16: 16, quant.Q4_Kx16: 128, quant.Q6_Kx16: 144}

// Sums of the largest codes and inputs there are fit into the integers of all paths: all codes are
// as large as their bits allow, and all inputs are the largest of their blocks, of one sign or the
// other.
func TestLargestCodesAndInputs(t *testing.T) {
	pool := NewPool(1)
	defer pool.Close()
	for _, kind := range packedTypes {
		largest := math.Nextafter32(127./64, 1) // above it blocks have a larger scale
		for _, x := range []float32{math.Nextafter32(2, 1), -math.Nextafter32(2, 1), largest, -largest} {
			g, _ := newPacked(t, newRand(), kind, 1, 16, 512)
			for i := range g.W {
				g.W[i] = 0xff
			}
			first := g.Format.bytes * quant.InterleavedRows
			for b := 0; b < len(g.W); b += first { // scales of one, not NaN
				for r := range quant.InterleavedRows {
					at := b + r/8*scaleBytes[kind] + r%8*2
					g.W[at], g.W[at+1] = 0, 0x3c
					if kind == quant.Q4_Kx16 {
						g.W[at+16], g.W[at+17] = 0, 0x3c
					}
				}
			}
			for i := range g.X {
				g.X[i] = x
			}
			g.Work = make([]float32, g.Workspace(1))
			if _, err := Choose("portable"); err != nil {
				t.Fatal(err)
			}
			g.Run(pool)
			want := slices.Clone(g.C)
			eachPath(t, func(t *testing.T) {
				for _, m := range []int{1, 2} {
					n := *g
					n.M, n.X, n.C = m, slices.Concat(g.X, g.X), make([]float32, m*g.N)
					n.Work = make([]float32, n.Workspace(1))
					n.Run(pool)
					if !slices.EqualFunc(n.C[:g.N], want, func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-6*math.Abs(float64(b)) }) {
						t.Errorf("%v, %d rows of %v: %v, plainly %v", kind, m, x, n.C[:4], want[:4])
					}
				}
			})
		}
	}
}
