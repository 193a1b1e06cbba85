package kernel

import "spillway/dtype"

// KeysAtOnce is how many keys the functions below take at most: the row length of transposed
// keys.
const KeysAtOnce = 64

// Attention over a cache is computed for a few queries of one sequence at a time, key after key
// in the order of positions: an element of Scores and of AddValues is one chain of
// multiply-adds, so that the bits of a query do not depend on the queries next to it. Neither do
// keys it does not see, whose weight is zero.

// TransposeKeys sets dst[d*KeysAtOnce+j] to element d of key j, for n keys of so many elements.
func TransposeKeys(dst, keys []float32, n, elements int) {
	active.packTranspose(&dst[0], KeysAtOnce, &keys[:n*elements][0], elements, elements, n)
}

// TransposeNarrowKeys is TransposeKeys for keys of a 16-bit type.
func TransposeNarrowKeys(dst []float32, keys []uint16, of dtype.Type, n, elements int) {
	active.half(of).transpose(&dst[0], KeysAtOnce, &keys[:n*elements][0], elements, elements, n)
}

// Scores multiplies queries [rows elements] by n keys that TransposeKeys has transposed: query i
// with key j is s[i*step+j].
func Scores(s []float32, step int, queries []float32, rows, elements int, keys []float32, n int) {
	r := active
	for j := 0; j < n; j += r.nr {
		r.tiles(&r.tileRows, rows, elements, elements, &queries[0], elements, &keys[j], KeysAtOnce, &s[j], step, min(r.nr, n-j), nil, 0, fetch{})
	}
}

// AddValues adds to sums [rows elements] the weights w[i*step+j] times the values
// [n elements] of n positions.
func AddValues(sums, w []float32, step, rows int, values []float32, n, elements int) {
	r := active
	for d := 0; d < elements; d += r.nr {
		r.tiles(&r.tileRows, rows, step, n, &w[0], step, &values[d], elements, &sums[d], elements, min(r.nr, elements-d), &sums[d], elements, fetch{})
	}
}
