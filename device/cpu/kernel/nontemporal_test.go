package kernel

import (
	"slices"
	"testing"
)

// TestCopyNonTemporal writes aligned lines and others, of whole lines and parts, and nothing around them.
func TestCopyNonTemporal(t *testing.T) {
	src := make([]float32, 64)
	for i := range src {
		src[i] = float32(i + 1)
	}
	for first := range 2 * lineFloats {
		for n := range 3 * lineFloats {
			for _, from := range [][]float32{nil, src[5:][:n]} {
				all, want := make([]float32, 128), make([]float32, 128)
				for i := range all {
					all[i], want[i] = -1, -1
				}
				clear(want[first:][:n])
				copy(want[first:][:n], from)
				CopyNonTemporal(all[first:][:n], from)
				if !slices.Equal(all, want) {
					t.Fatalf("%d elements from %d on: %v", n, first, all)
				}
			}
		}
	}
}
