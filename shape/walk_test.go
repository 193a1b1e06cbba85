package shape

import (
	"slices"
	"testing"
)

func TestBroadcast(t *testing.T) {
	for _, c := range []struct{ a, b, want Shape }{
		{Of(2, 3), Of(3), Of(2, 3)}, {Of(2, 1, 4), Of(3, 1), Of(2, 3, 4)}, {Of(), Of(5), Of(5)}, {Of(1), Of(0), Of(0)},
	} {
		if got, err := Broadcast(c.a, c.b); err != nil || !got.Equal(c.want) {
			t.Errorf("%v and %v give %v (%v), want %v", c.a, c.b, got, err, c.want)
		}
	}
	if _, err := Broadcast(Of(2, 3), Of(2)); err == nil {
		t.Error("3 and 2 fit together")
	}
}

// A walk meets the elements that indices counted by hand name, merged or not, row by row or by steps.
func TestWalk(t *testing.T) {
	over, small := Of(2, 3, 4), Of(3, 1)
	w := BroadcastWalk(over, over, small)
	var got [][2]int64
	w.Each(func(at []int64) { got = append(got, [2]int64{at[0], at[1]}) })
	for i := range int64(24) {
		if want := [2]int64{i, i / 4 % 3}; got[i] != want {
			t.Errorf("element %d is at %v, want %v", i, got[i], want)
		}
	}
	at, next := make([]int64, 2), make([]int64, 2)
	for i := range w.Rows() {
		w.Row(i, at)
		if i > 0 {
			w.Next(i, next)
		}
		if !slices.Equal(at, next) {
			t.Errorf("row %d is at %v and, by steps, %v", i, at, next)
		}
	}
	if m := BroadcastWalk(over, over, over); len(m.Dims) != 1 || m.Dims[0] != 24 {
		t.Errorf("a walk over equal tensors has dimensions %v", m.Dims)
	}
}

func TestAround(t *testing.T) {
	if a, b, c := Of(2, 3, 4, 5).Around(1, 2); a != 2 || b != 12 || c != 5 {
		t.Errorf("%d %d %d", a, b, c)
	}
	if Of(2).Has(1, 1) || Of(2).Has(0, 2) || !Of(2, 3).Has(0, 2) || Of(2).Has(-1, 1) {
		t.Error("dimensions there are not")
	}
}
