package data

import (
	"slices"
	"testing"
)

func TestOrderIsAPermutation(t *testing.T) {
	sizes := []int64{1, 2, 3, 4, 5, 7, 8, 9, 10, 99, 100, 101, 1000, 4096, 65537}
	for _, n := range sizes {
		for epoch := range uint64(5) {
			o := newOrder(n, 42, epoch)
			seen := make([]bool, n)
			for i := range n {
				j := o.at(i)
				if j < 0 || j >= n || seen[j] {
					t.Fatalf("n %d, epoch %d: place %d holds %d, out of range or again", n, epoch, i, j)
				}
				seen[j] = true
			}
		}
	}
	// A size no test could walk through: nearby places stay apart and in range.
	const huge = 1 << 60
	o, seen := newOrder(huge, 1, 1), map[int64]bool{}
	for i := range int64(1000) {
		j := o.at(huge - 1 - i)
		if j < 0 || j >= huge || seen[j] {
			t.Fatalf("place %d of 2^60 holds %d", i, j)
		}
		seen[j] = true
	}
}

// Every document must come to every place about equally often: a chi-square test
// with 9×9 degrees of freedom, whose 99.99% point is 137.
func TestOrderIsFair(t *testing.T) {
	const n, trials = 10, 4000
	var counts [n][n]float64
	for seed := range uint64(trials) {
		o := newOrder(n, seed, seed%3)
		for i := range int64(n) {
			counts[i][o.at(i)]++
		}
	}
	var chi float64
	for _, row := range counts {
		for _, c := range row {
			chi += (c - trials/n) * (c - trials/n) / (trials / n)
		}
	}
	if chi > 137 {
		t.Errorf("chi-square %v, at most 137 expected: %v", chi, counts)
	}
}

func TestOrderDependsOnSeedAndEpoch(t *testing.T) {
	list := func(seed, epoch uint64) []int64 {
		o := newOrder(100, seed, epoch)
		var out []int64
		for i := range int64(100) {
			out = append(out, o.at(i))
		}
		return out
	}
	base := list(1, 0)
	if !slices.Equal(base, list(1, 0)) {
		t.Error("the same seed gave two orders")
	}
	if slices.Equal(base, list(2, 0)) || slices.Equal(base, list(1, 1)) || slices.IsSorted(base) {
		t.Error("another seed or epoch gave the same order, or none")
	}
}

func BenchmarkOrder(b *testing.B) {
	o := newOrder(1e9, 1, 1)
	i := int64(0)
	for b.Loop() {
		o.at(i)
		i++
	}
}
