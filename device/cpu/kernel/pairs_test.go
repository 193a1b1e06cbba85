package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spillway/dtype"
)

// The fast tile multiplies a pair as multiplyPair does, to the bit: numbers of all sizes, also the largest and
// the least, zeros, infinities and NaN.
func TestPairsAreMultipliedOneAfterTheOther(t *testing.T) {
	if !HasPairs() {
		t.Skip("this CPU has no AVX-512 BF16: there is nothing to compare")
	}
	rng := newRand()
	for _, spread := range []int{8, 40, 127} {
		for range 20_000 {
			var a [1]float32
			var b, sums, got [16]float32
			a[0] = wordOf(someBF16(rng, spread), someBF16(rng, spread))
			for j := range b {
				b[j] = wordOf(someBF16(rng, spread), someBF16(rng, spread))
			}
			// Two k: the sum of the first is what the second begins with.
			two := slices.Concat(b[:], b[:])
			active.pairs.tileRows[1](2, &[]float32{a[0], a[0]}[0], 2, &two[0], 16, &got[0], 16, 16, nil, 0, fetch{})
			for j := range sums {
				for range 2 {
					sums[j] = multiplyPair(sums[j], math.Float32bits(a[0]), math.Float32bits(b[j]))
				}
				if !sameOrNaN(got[j], sums[j]) {
					t.Fatalf("%#08x times %#08x twice: %v (%#08x), plainly %v (%#08x)", math.Float32bits(a[0]), math.Float32bits(b[j]),
						got[j], math.Float32bits(got[j]), sums[j], math.Float32bits(sums[j]))
				}
			}
		}
	}
}

// someBF16 is a number whose exponent is within so many powers of two of 1; seldom a special one.
func someBF16(rng *rand.Rand, spread int) uint16 {
	if spread >= 127 && rng.IntN(20) == 0 {
		return []uint16{0, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0x0080, 0x8080, 0x0001, 0x807f}[rng.IntN(10)]
	}
	exponent := uint16(max(0, min(254, 127-spread+rng.IntN(2*spread+1))))
	return uint16(rng.IntN(2))<<15 | exponent<<7 | uint16(rng.IntN(128))
}

func sameOrNaN(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// newPairs is a matmul of bf16, and the same in f32.
func newPairs(rng *rand.Rand, m, n, k, mode int) (*Pairs, *Gemm) {
	wide := newGemm(rng, m, n, k, mode)
	wide.CStep, wide.C = n, random(rng, m*n)
	p := &Pairs{M: m, N: n, K: k, C: make([]uint16, m*n)}
	p.A, wide.A = narrowed(wide.A, dtype.BF16)
	p.B, wide.B = narrowed(wide.B, dtype.BF16)
	dtype.BF16.Narrow(p.C, wide.C)
	dtype.BF16.Widen(wide.C, p.C)
	return p, wide
}

// A matmul of bf16 has the bits of a matmul of the same numbers in f32, rounded: on all paths, for all numbers
// of rows, storage orders and sizes, with one worker and with three.
func TestPairsHaveTheBitsOfWideNumbers(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	sizes := [][2]int{{1, 1}, {16, 8}, {33, 130}, {65, 64}, {49, 520}, {71, 1096}, {130, 1536}, {97, 77}, {1100, 41}}
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for i, s := range sizes {
			for _, m := range []int{1, 2, 3, 5, 8, 48, 49, 121} {
				if m > 8 && s[0]*s[1] > 60_000 && !HasPairs() {
					continue
				}
				for mode := range 8 {
					p, wide := newPairs(rng, m, s[0], s[1], mode)
					p.add(rng, wide, (i+mode)%5)
					comparePairs(t, p, wide, one, three)
				}
			}
		}
	})
}

// add has something added to both.
func (g *Pairs) add(rng *rand.Rand, wide *Gemm, what int) {
	switch what {
	case 0:
		g.Accumulate, wide.Accumulate = true, true
	case 4:
		g.Accumulate, wide.Accumulate = true, true
		fallthrough
	case 1:
		wide.Bias = random(rng, g.N)
		g.Bias = wide.Bias
	case 2:
		wide.Plus, g.Plus = random(rng, len(wide.C)), make([]uint16, len(wide.C))
		dtype.BF16.Narrow(g.Plus, wide.Plus)
		dtype.BF16.Widen(wide.Plus, g.Plus)
	}
}

func comparePairs(t *testing.T, p *Pairs, wide *Gemm, one, three *Pool) {
	t.Helper()
	wide.Work = make([]float32, wide.Workspace(3))
	wide.Run(three)
	want := make([]uint16, len(wide.C))
	dtype.BF16.Narrow(want, wide.C)
	before := slices.Clone(p.C)
	for _, pool := range []*Pool{one, three} {
		p.C = slices.Clone(before)
		p.Work = random(newRand(), p.Workspace(pool.Workers()))
		p.Run(pool)
		for i, v := range p.C {
			if v != want[i] {
				t.Fatalf("%dx%dx%d, A transposed %v, B transposed %v, interleaved %v, %d workers: element %d is %#04x, of f32 %#04x",
					p.M, p.N, p.K, p.A.Transposed, p.B.Transposed, p.B.Interleaved, pool.Workers(), i, v, want[i])
			}
		}
	}
}

// The same with interleaved weights.
func TestInterleavedPairsHaveTheBitsOfWideNumbers(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for i, s := range [][2]int{{32, 8}, {64, 8}, {160, 136}, {96, 1096}, {352, 1536}} {
			for _, m := range []int{1, 2, 3, 4, 5, 8, 12, 13, 48, 49, 100} {
				if m > 8 && s[0]*s[1] > 60_000 && !HasPairs() {
					continue
				}
				p, wide := newPairs(rng, m, s[0], s[1], 2)
				p.add(rng, wide, (i+m)%5)
				p.B = interleavedMatrix(p.B, p.K)
				comparePairs(t, p, wide, one, three)
			}
		}
	})
}

// interleavedMatrix is a transposed right operand with columns together.
func interleavedMatrix(m Matrix, k int) Matrix {
	h, codes := active.half(m.Type), make([]uint16, len(m.Codes))
	for i, c := range m.Codes {
		row, col := i/k, i%k
		codes[row/32*32*k+h.interleavedAt(col, row%32)] = c
	}
	m.Interleaved, m.Codes = true, codes
	return m
}

// A row has the same bits alone and in company, whatever the storage order of B, also where numbers are so small that
// they count as zero.
func TestPairsOfSmallNumbersDoNotDependOnTheRest(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	const most, n, k = 60, 64, 1096
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		p, _ := newPairs(rng, most, n, k, 2)
		for _, codes := range [][]uint16{p.A.Codes, p.B.Codes} {
			for i := range codes { // of 2^-118 to 2^-150
				codes[i] = uint16(rng.IntN(2))<<15 | uint16(127-60-rng.IntN(16))<<7 | uint16(rng.IntN(128))
				if rng.IntN(8) == 0 {
					codes[i] = uint16(rng.IntN(1 << 7)) // below 2^-126
				}
			}
		}
		across := Matrix{Type: dtype.BF16, Step: n, Codes: make([]uint16, n*k)}
		for i, c := range p.B.Codes {
			across.Codes[i%k*n+i/k] = c
		}
		var want []uint16
		for _, b := range []Matrix{p.B, across, interleavedMatrix(p.B, k)} {
			for _, m := range []int{most, 1, 2, 3, 5, 12, 48} {
				p.M, p.B, p.C = m, b, make([]uint16, m*n)
				p.Work = make([]float32, p.Workspace(2))
				p.Run(pool)
				if want == nil {
					want = p.C
				}
				if !slices.Equal(p.C, want[:m*n]) {
					t.Fatalf("%d rows, B transposed %v, interleaved %v: other bits than %d rows have", m, b.Transposed, b.Interleaved, most)
				}
			}
		}
	})
}

// Running allocates nothing.
func TestPairsAllocateNothing(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	p, _ := newPairs(newRand(), 60, 64, 64, 2)
	p.Work = make([]float32, p.Workspace(2))
	p.Run(pool)
	if n := testing.AllocsPerRun(10, func() { p.Run(pool) }); n > 0 {
		t.Errorf("%v allocations a run", n)
	}
}

// BenchmarkPairs shows how fast one core multiplies bf16 by bf16, and how many times as fast as the same numbers in
// f32: the matmuls of a linear layer with 2048 inputs and outputs, forward and for both gradients.
func BenchmarkPairs(b *testing.B) {
	pool := NewPool(1)
	defer pool.Close()
	const side = 2048
	for _, kind := range []struct {
		name string
		mode int
		m, k int
	}{{"forward", 2, 512, side}, {"interleaved", 2, 512, side}, {"input gradient", 0, 512, side}, {"weight gradient", 1, side, 512}, {"interleaved", 2, 32, side}, {"forward", 2, 32, side}} {
		b.Run(fmt.Sprintf("%s/%d", kind.name, kind.m), func(b *testing.B) {
			p, wide := newPairs(newRand(), kind.m, side, kind.k, kind.mode)
			if kind.name == "interleaved" {
				p.B = interleavedMatrix(p.B, p.K)
			}
			p.Work = make([]float32, p.Workspace(1))
			wide.Work = make([]float32, wide.Workspace(1))
			timed := func(run func(*Pool)) time.Duration {
				start := time.Now()
				run(pool)
				return time.Since(start)
			}
			best, f32 := time.Hour, time.Hour
			for b.Loop() {
				best, f32 = min(best, timed(p.Run)), min(f32, timed(wide.Run))
			}
			b.ReportMetric(float64(p.M)*float64(p.N)*float64(p.K)/best.Seconds()/1e9, "GMAC/s")
			b.ReportMetric(f32.Seconds()/best.Seconds(), "times-f32")
		})
	}
}
