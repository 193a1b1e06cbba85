package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// eachPath runs a test on every path of this CPU.
func eachPath(t *testing.T, f func(t *testing.T)) {
	for _, r := range available() {
		t.Run(r.name, func(t *testing.T) {
			defer func(old *routines) { active = old }(active)
			active = r
			f(t)
		})
	}
}

// random fills n elements from a normal distribution.
func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// element is A(i, j), spelled out.
func (m *Matrix) element(i, j int) float64 {
	if m.Transposed {
		i, j = j, i
	}
	return float64(m.Data[i*m.Step+j])
}

func randomMatrix(rng *rand.Rand, rows, cols, pad int, transposed bool) Matrix {
	if transposed {
		rows, cols = cols, rows
	}
	return Matrix{Data: random(rng, rows*(cols+pad)), Step: cols + pad, Transposed: transposed}
}

// check compares the product with a float64 sum; the bound is the one of a sum of K
// rounded terms, in terms of the sum of absolute values.
func (g *Gemm) check(t *testing.T, before []float32) {
	t.Helper()
	for i := range g.M {
		for j := range g.N {
			sum, size := 0.0, 0.0
			for p := range g.K {
				x := g.A.element(i, p) * g.B.element(p, j)
				sum, size = sum+x, size+math.Abs(x)
			}
			if g.Bias != nil {
				sum += float64(g.Bias[j])
			}
			if g.Accumulate {
				sum += float64(before[i*g.CStep+j])
			}
			if g.Plus != nil {
				sum += float64(g.Plus[i*g.CStep+j])
			}
			got := float64(g.C[i*g.CStep+j])
			if math.Abs(got-sum) > 1e-6*(size+math.Abs(sum)+1) || math.IsNaN(got) {
				t.Fatalf("C(%d, %d) = %v, want %v", i, j, got, sum)
			}
		}
	}
	for i := range g.M { // what lies between the rows stays as it was
		for j := g.N; j < g.CStep && i*g.CStep+j < len(before); j++ {
			if g.C[i*g.CStep+j] != before[i*g.CStep+j] {
				t.Fatalf("element %d past row %d was written", j-g.N, i)
			}
		}
	}
}

func TestGemm(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	sizes := [][3]int{{1, 1, 1}, {1, 70, 5}, {5, 33, 401}, {12, 32, 16}, {48, 31, 9}, {49, 16, 385}, {61, 97, 3}, {100, 45, 777}, {97, 300, 24}, {61, 1100, 70}}
	eachPath(t, func(t *testing.T) {
		rng := newRand()
		for i, s := range sizes {
			for mode := range 8 {
				g := newGemm(rng, s[0], s[1], s[2], mode)
				g.Accumulate = i%2 == 0
				if i%3 == 0 {
					g.Accumulate, g.Bias = i > 0 && i%2 == 0, random(rng, g.N)
				}
				if i%3 == 1 {
					g.Accumulate, g.Plus = false, random(rng, len(g.C))
				}
				before := append([]float32(nil), g.C...)
				g.Run(pool)
				t.Run(fmt.Sprintf("%dx%dx%d/%03b", s[0], s[1], s[2], mode), func(t *testing.T) { g.check(t, before) })
			}
		}
	})
}

// TestLines compares lines of tiles with the same tiles one by one, to the bit.
func TestLines(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	eachPath(t, func(t *testing.T) {
		if active.lineRows == nil {
			t.Skip("portable Go computes tiles one by one: there is nothing to compare")
		}
		singly := *active
		singly.lineCols, singly.lineRows = nil, nil
		lines, rng := active, newRand()
		defer func() { active = lines }()
		for i, s := range [][3]int{{49, 16, 1}, {54, 15, 7}, {60, 33, 385}, {97, 300, 1030}, {300, 1100, 6}} {
			for mode := range 8 {
				g := newGemm(rng, s[0], s[1], s[2], mode)
				g.Accumulate = i%2 == 0
				if i%3 == 1 {
					g.Bias = random(rng, g.N)
				}
				before := slices.Clone(g.C)
				active = lines
				g.Run(pool)
				got := g.C
				g.C = before
				active = &singly
				g.Run(pool)
				if !slices.Equal(got, g.C) {
					t.Errorf("%d x %d x %d, mode %03b: lines of tiles have other bits than the tiles", s[0], s[1], s[2], mode)
				}
			}
		}
	})
}

// newGemm makes a random product; bits of mode: A transposed, B transposed, rows
// longer than the matrix is wide.
func newGemm(rng *rand.Rand, m, n, k, mode int) *Gemm {
	pad := mode >> 2 * 3
	g := &Gemm{
		M: m, N: n, K: k,
		A: randomMatrix(rng, m, k, pad, mode&1 != 0), B: randomMatrix(rng, k, n, pad, mode&2 != 0),
		C: random(rng, m*(n+pad)), CStep: n + pad,
	}
	g.Work = make([]float32, g.Workspace(3))
	return g
}

// A row of C must have the same bits alone as in company, with one worker as with
// three, and whatever the storage order of B.
func TestGemmRowsDoNotDependOnTheRest(t *testing.T) {
	one, three := NewPool(1), NewPool(3)
	defer one.Close()
	defer three.Close()
	const m, n, k = 130, 75, 900
	eachPath(t, func(t *testing.T) {
		for mode, step := range []int{k, 1} { // from row to row of A, and A transposed or not
			g := newGemm(newRand(), m, n, k, mode)
			g.Run(three)
			for _, rows := range []int{1, 7, 50, 129} {
				s := *g
				s.M, s.C, s.A.Data = rows, make([]float32, rows*n), g.A.Data[(m-rows)*step:]
				s.B = g.B.transpose(k, n)
				s.Work = make([]float32, s.Workspace(1))
				s.Run(one)
				for i, v := range s.C {
					if want := g.C[(m-rows)*n+i]; v != want {
						t.Fatalf("mode %d, %d rows alone: element %d is %v, in company %v", mode, rows, i, v, want)
					}
				}
			}
		}
	})
}

// A column of C must have the same bits alone as in company: tiles of few columns compute those that exist only, and write to no other.
func TestGemmColumnsDoNotDependOnTheRest(t *testing.T) {
	pool := NewPool(1)
	defer pool.Close()
	const n, k = 80, 37
	eachPath(t, func(t *testing.T) {
		for _, m := range []int{1, 2, 3, 13, 16, 60} {
			for mode := range 8 { // A transposed, rows longer than they need be, and what is added
				g := newGemm(newRand(), m, n, k, mode&1|mode&2<<1)
				if g.Accumulate = mode&4 != 0; !g.Accumulate && mode&2 != 0 {
					g.Bias = random(newRand(), n)
				}
				before := slices.Clone(g.C)
				g.Run(pool)
				for _, cols := range []int{1, 5, 15, 16, 17, 31, 32, 33, 64} {
					s := *g
					s.N, s.C = cols, slices.Clone(before)
					s.Work = make([]float32, s.Workspace(1))
					s.Run(pool)
					for i, v := range s.C {
						want := before[i]
						if i%g.CStep < cols {
							want = g.C[i]
						}
						if v != want {
							t.Fatalf("%d rows, mode %03b, %d columns: element %d of row %d is %v, want %v", m, mode, cols, i%g.CStep, i/g.CStep, v, want)
						}
					}
				}
			}
		}
	})
}

// Workers that help each other leave the bits of one that works alone, also where there
// are many of them for few pieces, and where matmuls of several callers take turns.
func TestHelpersLeaveTheBits(t *testing.T) {
	one, many := NewPool(1), NewPool(7)
	defer one.Close()
	defer many.Close()
	var callers sync.WaitGroup
	for mode := range 4 {
		want := newGemm(newRand(), 500, 130, 600, mode)
		want.Run(one)
		g := newGemm(newRand(), 500, 130, 600, mode)
		g.Work = make([]float32, g.Workspace(7))
		callers.Go(func() {
			for range 20 {
				clear(g.C)
				g.Run(many)
				if !slices.Equal(g.C, want.C) {
					t.Errorf("mode %d: seven workers give other bits than one", mode)
				}
			}
		})
	}
	callers.Wait()
}

// A product that panics, for want of half of an operand, ends for all of its workers, and the
// pool goes on.
func TestHelpersOutliveAPanic(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	bad, good := newGemm(newRand(), 300, 300, 300, 1), newGemm(newRand(), 300, 300, 300, 1)
	bad.A.Data = bad.A.Data[:len(bad.A.Data)/2]
	func() {
		defer func() {
			if recover() == nil {
				t.Error("half of the operand was enough")
			}
		}()
		bad.Run(pool)
	}()
	before := slices.Clone(good.C)
	good.Run(pool)
	good.check(t, before)
}

// transpose is the same k by n matrix stored the other way.
func (m *Matrix) transpose(k, n int) Matrix {
	x := Matrix{Data: make([]float32, n*k), Step: k, Transposed: true}
	for i := range k {
		for j := range n {
			x.Data[j*k+i] = float32(m.element(i, j))
		}
	}
	return x
}

func TestGemmAllocatesNothing(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	for _, m := range []int{8, 100} {
		g := newGemm(newRand(), m, 100, 100, 0)
		if n := testing.AllocsPerRun(100, func() { g.Run(pool) }); n != 0 {
			t.Errorf("%v allocations per product of %d rows", n, m)
		}
	}
}

// BenchmarkGemm shows matmuls as a share of what registers alone allow.
func BenchmarkGemm(b *testing.B) {
	for _, workers := range []int{1, 2} {
		pool := NewPool(workers)
		defer pool.Close()
		for _, s := range [][4]int{{1024, 1024, 1024, 0}, {1024, 1024, 1024, 1}, {1024, 1024, 1024, 2}, {2048, 2048, 2048, 0}, {1, 4096, 4096, 0}, {1, 4096, 4096, 2}, {8, 4096, 4096, 2}} {
			g := newGemm(newRand(), s[0], s[1], s[2], s[3])
			b.Run(fmt.Sprintf("%dT/%dx%dx%d/%02b", workers, s[0], s[1], s[2], s[3]), func(b *testing.B) {
				for b.Loop() {
					g.Run(pool)
				}
				reportRate(b, pool, 2*float64(s[0])*float64(s[1])*float64(s[2]))
			})
		}
	}
}

// reportRate reports the rate of a benchmark of so many operations a round, and its
// share of the rate at which the pool multiplies and adds in registers right afterwards.
func reportRate(b *testing.B, pool *Pool, operations float64) {
	rate, done, start := operations*float64(b.N)/b.Elapsed().Seconds(), 0.0, time.Now()
	for range 20 {
		done += Saturate(pool, 10_000)
	}
	b.ReportMetric(rate/1e9, "GFLOP/s")
	b.ReportMetric(rate/(done/time.Since(start).Seconds()), "of-peak")
}
