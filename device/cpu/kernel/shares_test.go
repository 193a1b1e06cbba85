package kernel

import "testing"

// Pieces follow each other, are all of the work and never grow; the last ones are short.
func TestShares(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 16} {
		for _, n := range []int{1, 2, 5, 31, 256, 704, 4000} {
			s := shares{n, workers}
			next, before := 0, n
			for i := range s.pieces() {
				first, length := s.piece(i)
				if first != next || length < 1 || length > before {
					t.Fatalf("%v: piece %d is %d from %d on, the one before ended at %d with %d", s, i, length, first, next, before)
				}
				next, before = first+length, length
			}
			if next != n || before > max(1, n/(shortest*workers)) {
				t.Errorf("%v: %d units are shared, the last %d together", s, next, before)
			}
		}
	}
}
