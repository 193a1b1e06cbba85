package tenancy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A map of ranges says the same as an array with an entry per byte.
func TestTakeAgainstBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var m Map
		bytes := make([]int32, 64)
		for i := range bytes {
			bytes[i] = -1
		}
		for buffer := range 100 {
			lo := r.Int64N(64)
			hi := min(lo+r.Int64N(20), 64)
			var want []int32
			for i := lo; i < hi; i++ {
				if had := bytes[i]; had >= 0 && (len(want) == 0 || want[len(want)-1] != had) {
					want = append(want, had)
				}
				bytes[i] = int32(buffer)
			}
			if got := slices.Compact(slices.Clone(m.Take(buffer, lo, hi))); !slices.Equal(got, want) {
				t.Fatalf("bytes %d to %d were of %v, the map says %v", lo, hi, want, got)
			}
		}
	}
}
