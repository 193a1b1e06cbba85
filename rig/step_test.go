package rig

import (
	"testing"

	"spillway/dtype"
	"spillway/op"
)

// Calls on a cache are measured with rows that are busy: each sees all positions that its sequence is said to have, and no
// two rows are the same position of a sequence.
func TestRowsOfACacheAreBusy(t *testing.T) {
	const heads, kv, size, page, table = 4, 2, 16, 8, 5
	for _, c := range []struct{ rows, sequences, filled int64 }{{3, 4, 33}, {4, 4, 1}, {20, 4, 33}, {30, 4, 11}, {64, 4, 11}, {3, 4, 0}} {
		cache := of(dtype.BF16, c.sequences*table, kv, page, size)
		call, err := op.Make(op.AttendCache, op.Attr{Heads: heads, KVHeads: kv, Scale: 1, Document: c.filled}, of(dtype.BF16, 1, c.rows, heads*size), cache, cache,
			of(dtype.I32, 1, c.rows), of(dtype.I32, 1, c.rows), of(dtype.I32, c.sequences, table))
		if err != nil {
			t.Fatal(err)
		}
		filled := c.filled
		if filled == 0 {
			filled = table * page
		}
		list := func(i int) (list []int32) {
			s := contentOf(call, i).step
			for n := range s.all {
				list = append(list, s.number(n))
			}
			return list
		}
		positions, sequences, pages := list(3), list(4), list(5)
		if int64(len(positions)) != c.rows || int64(len(sequences)) != c.rows || int64(len(pages)) != c.sequences*table {
			t.Fatalf("%+v: %d positions, %d sequences, %d pages", c, len(positions), len(sequences), len(pages))
		}
		seen, busy, last := map[[2]int32]bool{}, int64(0), int32(0)
		for i, p := range positions {
			s := sequences[i]
			if int64(s) >= c.sequences { // idle
				continue
			}
			if busy++; s < 0 || p < 0 || int64(p) >= filled || seen[[2]int32{s, p}] {
				t.Errorf("%+v: row %d is position %d of sequence %d", c, i, p, s)
			}
			seen[[2]int32{s, p}], last = true, max(last, p)
		}
		if want := min(c.rows, c.sequences*filled); busy != want || int64(last) != filled-1 {
			t.Errorf("%+v: %d rows are busy, want %d; the last position is %d", c, busy, want, last)
		}
		taken := map[int32]bool{}
		for _, n := range pages {
			if n < 0 || int64(n) >= c.sequences*table || taken[n] {
				t.Errorf("%+v: page %d", c, n)
			}
			taken[n] = true
		}
	}
}
