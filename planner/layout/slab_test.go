package layout

import (
	"slices"
	"testing"

	"spillway/plan"
)

// Adapters stay on the device until all they adapt streams.
func TestSmallSlabsStreamLast(t *testing.T) {
	s := &Slabs{OfBlock: [][]int{{0, 1}, {2, 3}, {4, 5}}} // two slabs in each of three blocks
	for _, bytes := range []int64{1000, 4, 100, 4, 80, 3} {
		s.List = append(s.List, plan.Slab{WeightBytes: bytes})
	}
	for n, want := range map[int][]int{0: nil, 1: {4}, 2: {2, 4}, 3: {0, 2, 4}, 4: {0, 2, 4, 5}, 6: {0, 1, 2, 3, 4, 5}} {
		var got []int
		for k, mark := range s.Streaming(n) {
			if mark {
				got = append(got, k)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d slabs that stream are %v, want %v", n, got, want)
		}
	}
}
