package driver

import "testing"

// Matrices of a batch lie where its steps put them.
func TestAlignmentsOfBatches(t *testing.T) {
	p := Gemm{A: Matrix{Type: RealF32}, B: Matrix{Type: RealBF16}, D: Matrix{Type: RealF16}}
	for _, c := range []struct {
		batch Batch
		want  [4]int32
	}{
		{Batch{}, [4]int32{16, 16, 16, 16}},
		{Batch{2, 64, 64, 64}, [4]int32{16, 16, 16, 16}},
		{Batch{2, 35, 35, 36}, [4]int32{4, 2, 8, 8}},
		{Batch{2, 0, 6, 1}, [4]int32{16, 4, 2, 2}},
	} {
		if got := alignments(p, c.batch); got != c.want {
			t.Errorf("%+v: aligned to %v bytes, want %v", c.batch, got, c.want)
		}
	}
}
