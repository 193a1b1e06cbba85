package rig

import (
	"math"
	"testing"
)

// A position is in a document of as many positions on average as was asked for; each sequence begins with document 0, and
// lengths differ.
func TestDocumentsHaveTheirLength(t *testing.T) {
	for _, c := range [][2]int64{{993, 256}, {2019, 25}, {2019, 1500}, {64, 3}, {4096, 4095}} {
		list := documents(c[0], c[1])
		if int64(len(list)) != documentRows*c[0] {
			t.Fatalf("%d positions", len(list))
		}
		sum, lengths := 0.0, map[int]bool{}
		for row := range documentRows {
			counts := map[int32]int{}
			for i, n := range list[int64(row)*c[0] : int64(row+1)*c[0]] {
				if counts[n]++; i == 0 && n != 0 {
					t.Errorf("sequence %d begins with document %d", row, n)
				}
			}
			for _, n := range counts {
				sum, lengths[n] = sum+float64(n*n), true
			}
		}
		if mean := sum / float64(len(list)); math.Abs(mean-float64(c[1])) > 0.1*float64(c[1]) {
			t.Errorf("%d positions in documents of %.1f, want %d", c[0], mean, c[1])
		}
		if len(lengths) < 2 && c[1] < c[0]-1 {
			t.Errorf("documents of %v", lengths)
		}
	}
}
