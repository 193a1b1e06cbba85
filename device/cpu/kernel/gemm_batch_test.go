package kernel

import (
	"slices"
	"testing"
)

// Matmuls of a batch have the bits of each of them alone, with many and with few workers.
func TestBatchesHaveTheBitsOfMatmuls(t *testing.T) {
	rng := newRand()
	for _, c := range []struct{ count, m, n, k int }{{1, 5, 7, 9}, {3, 60, 33, 70}, {11, 70, 40, 65}, {40, 3, 17, 20}, {200, 3, 17, 20}} {
		left, right := random(rng, c.count*c.m*c.k), random(rng, 2*c.n*c.k)
		one := Gemm{M: c.m, N: c.n, K: c.k, A: Matrix{Step: c.k}, B: Matrix{Step: c.k, Transposed: true}, CStep: c.n}
		at := make([][3]int, c.count)
		want := make([]float32, c.count*c.m*c.n)
		pool := NewPool(1)
		for i := range at {
			at[i] = [3]int{i * c.m * c.k, i % 2 * c.n * c.k, i * c.m * c.n}
			g := one
			g.A.Data, g.B.Data, g.C, g.Work = left[at[i][0]:], right[at[i][1]:], want[at[i][2]:], make([]float32, one.Workspace(1))
			g.Run(pool)
		}
		pool.Close()
		for _, workers := range []int{1, 2, 5} {
			g := &GemmBatch{Gemm: one, At: at, Left: left, Right: right, Out: make([]float32, len(want))}
			g.Work = random(rng, g.Workspace(workers))
			pool := NewPool(workers)
			for range 2 {
				g.Run(pool)
			}
			pool.Close()
			if !slices.Equal(g.Out, want) {
				t.Errorf("%+v with %d workers differs", c, workers)
			}
		}
	}
}
