package nn_test

import (
	"slices"
	"testing"

	"spillway/nn"
)

// The buckets of transformers' T5Attention, written as where a next one begins: [distance of key from query, bucket].
func TestT5Buckets(t *testing.T) {
	for _, c := range []struct {
		both             bool
		buckets, largest int32
		starts           [][2]int32
	}{
		{true, 32, 128, [][2]int32{{-300, 15}, {-90, 14}, {-63, 13}, {-45, 12}, {-31, 11}, {-22, 10}, {-15, 9}, {-11, 8}, {-7, 7}, {-6, 6}, {-5, 5}, {-4, 4}, {-3, 3}, {-2, 2}, {-1, 1}, {0, 0},
			{1, 17}, {2, 18}, {3, 19}, {4, 20}, {5, 21}, {6, 22}, {7, 23}, {8, 24}, {12, 25}, {16, 26}, {23, 27}, {32, 28}, {46, 29}, {64, 30}, {91, 31}}},
		{false, 16, 50, [][2]int32{{-300, 15}, {-39, 14}, {-31, 13}, {-25, 12}, {-19, 11}, {-15, 10}, {-12, 9}, {-10, 8}, {-7, 7}, {-6, 6}, {-5, 5}, {-4, 4}, {-3, 3}, {-2, 2}, {-1, 1}, {0, 0}}},
		{true, 8, 6, [][2]int32{{-300, 3}, {-3, 2}, {-1, 1}, {0, 0}, {1, 5}, {2, 6}, {4, 7}}},
	} {
		const n = 301
		places := nn.T5Buckets(c.both, c.buckets, c.largest)(n, n)
		for _, query := range []int32{0, n - 1, 150} {
			for key := range int32(n) {
				at := slices.IndexFunc(c.starts, func(s [2]int32) bool { return s[0] > key-query })
				if at < 0 {
					at = len(c.starts)
				}
				if got, want := places[query*n+key], c.starts[at-1][1]; got != want {
					t.Fatalf("%d buckets up to %d, in both directions %v: key %d of query %d is in %d, want %d", c.buckets, c.largest, c.both, key, query, got, want)
				}
			}
		}
	}
}

// Pairs of a window that are as far from each other share a row, and no others: all (2·3-1)² rows are used.
func TestSwinPlaces(t *testing.T) {
	places := nn.SwinPlaces(3)(9, 9)
	apart := map[int32][2]int{}
	for i, row := range places {
		q, k := i/9, i%9
		far := [2]int{q/3 - k/3, q%3 - k%3}
		if had, ok := apart[row]; ok && had != far {
			t.Fatalf("row %d is of pairs %v and %v apart", row, had, far)
		}
		apart[row] = far
	}
	if len(apart) != 25 || places[0] != 12 || places[8] != 0 || places[72] != 24 { // transformers' numbers for a pair with itself and opposite corners
		t.Errorf("%d rows; %d, %d, %d", len(apart), places[0], places[8], places[72])
	}
}
