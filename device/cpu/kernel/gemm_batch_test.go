package kernel

import (
	"slices"
	"testing"
)

// Matmuls of a batch have the bits of each of them alone, with many and with few workers, on every path and in all storage orders.
func TestBatchesHaveTheBitsOfMatmuls(t *testing.T) {
	defer func(old *routines) { active = old }(active)
	for _, active = range available() {
		for orders := range 4 {
			batchesHaveTheBitsOfMatmuls(t, orders&1 > 0, orders&2 > 0)
		}
	}
}

func batchesHaveTheBitsOfMatmuls(t *testing.T, transA, transB bool) {
	rng := newRand()
	for _, c := range []struct{ count, m, n, k int }{{1, 5, 7, 9}, {3, 60, 33, 70}, {11, 70, 40, 65}, {40, 3, 17, 20}, {200, 3, 17, 20}, {30, 16, 16, 16}, {9, 48, 70, 24}, {5, 2, 8, 600}} {
		left, right := random(rng, c.count*c.m*c.k), random(rng, 2*c.n*c.k)
		one := Gemm{M: c.m, N: c.n, K: c.k, A: Matrix{Step: c.k, Transposed: transA}, B: Matrix{Step: c.n, Transposed: transB}, CStep: c.n}
		if transA {
			one.A.Step = c.m
		}
		if transB {
			one.B.Step = c.k
		}
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
				t.Errorf("%s, %v, %v: %+v with %d workers differs", active.name, transA, transB, c, workers)
			}
		}
	}
}
