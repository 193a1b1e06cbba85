package pass

import (
	"slices"
	"sync"
)

// occupancy knows which offsets are taken at which moments. Time is a binary tree: a leaf
// is a moment, a node the moments of its two children. Offsets that touch are joined into
// one range, so that lists stay short however many spans there are.
type occupancy struct {
	rank   []int32 // by moment, from -1 on: its leaf
	leaves int
	// throughout, by node: taken at all its moments, by spans whose time the node is a part
	// of. sometime: taken at one of its moments at least.
	throughout, sometime []ranges
	meets                []ranges // scratch of lowestGap
	// of the span that was found last, nodes: those that together are its time, and those above them
	parts, above []int32
}

// ranges of offsets, sorted and apart.
type ranges []struct{ lo, hi int64 }

// initialRanges is how many ranges a node can hold before its list grows.
const initialRanges = 4

// spare are those that are used no more: a search packs hundreds of times, and what it takes is large.
var spare = sync.Pool{New: func() any { return &occupancy{} }}

// release gives the memory back, for those to come.
func (o *occupancy) release() { spare.Put(o) }

// newOccupancy is empty; the spans are all that lowestGap and put will be called with.
func newOccupancy(spans []*Span) *occupancy {
	last := -1
	for _, s := range spans {
		last = max(last, s.To)
	}
	o := spare.Get().(*occupancy)
	o.rank = append(o.rank[:0], make([]int32, last+2)...)
	for _, s := range spans { // only moments where something begins or ends matter
		o.rank[s.From+1], o.rank[s.To+1] = 1, 1
	}
	moments := 0
	for i, mark := range o.rank {
		o.rank[i] = int32(moments)
		moments += int(mark)
	}
	for o.leaves = 1; o.leaves < moments; o.leaves *= 2 {
	}
	o.throughout, o.sometime = emptied(o.throughout, 2*o.leaves), emptied(o.sometime, 2*o.leaves)
	return o
}

// emptied makes as many empty lists of ranges, with the memory that they have had. New ones share one allocation.
func emptied(lists []ranges, n int) []ranges {
	lists = lists[:cap(lists)]
	for i := range min(n, len(lists)) {
		lists[i] = lists[i][:0]
	}
	if more := n - len(lists); more > 0 {
		room := make(ranges, more*initialRanges)
		for i := range more {
			lists = append(lists, room[i*initialRanges:i*initialRanges:(i+1)*initialRanges])
		}
	}
	return lists[:n]
}

// find finds the nodes of a span that lowestGap and put are called with next. Above its parts are nodes that hold its first or its last
// moment.
func (o *occupancy) find(s *Span) {
	first, last := o.rank[s.From+1]+int32(o.leaves), o.rank[s.To+1]+int32(o.leaves)
	o.parts, o.above = o.parts[:0], o.above[:0]
	for lo, hi := first, last+1; lo < hi; lo, hi = lo/2, hi/2 {
		if lo&1 == 1 {
			o.parts = append(o.parts, lo)
			lo++
		}
		if hi&1 == 1 {
			hi--
			o.parts = append(o.parts, hi)
		}
	}
	for lo, hi := first/2, last/2; lo > 0; lo, hi = lo/2, hi/2 {
		o.above = append(o.above, lo)
		if hi != lo {
			o.above = append(o.above, hi)
		}
	}
}

// put takes the offsets of the span that was found up to an end.
func (o *occupancy) put(s *Span, end int64) {
	for _, node := range o.parts {
		o.throughout[node].add(s.Offset, end)
		o.sometime[node].add(s.Offset, end)
	}
	for _, node := range o.above {
		o.sometime[node].add(s.Offset, end)
	}
}

// lowestGap is the least offset from which on the bytes of the span that was found are free all its time.
func (o *occupancy) lowestGap(s *Span) int64 {
	o.meets = o.meets[:0]
	for _, node := range o.parts {
		if r := o.sometime[node]; len(r) > 0 {
			o.meets = append(o.meets, r)
		}
	}
	for _, node := range o.above {
		if r := o.throughout[node]; len(r) > 0 {
			o.meets = append(o.meets, r)
		}
	}
	var at int64
	for again := true; again; {
		again = false
		for _, r := range o.meets {
			if free := r.free(at, s.Bytes); free > at {
				at, again = free, true
			}
		}
	}
	return at
}

// free is the least offset, not below at, from which on so many bytes are free.
func (r ranges) free(at, bytes int64) int64 {
	for i := r.after(at); i < len(r) && r[i].lo < at+bytes; i++ {
		at = r[i].hi
	}
	return at
}

// after finds the first range that ends behind an offset.
func (r ranges) after(at int64) int {
	lo, hi := 0, len(r)
	for lo < hi {
		if mid := (lo + hi) / 2; r[mid].hi > at {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// add takes offsets, joined with those they touch.
func (r *ranges) add(lo, hi int64) {
	list := *r
	from := list.after(lo - 1) // a range that ends where this begins joins it
	to := from
	for ; to < len(list) && list[to].lo <= hi; to++ {
		lo, hi = min(lo, list[to].lo), max(hi, list[to].hi)
	}
	if to > from {
		list[from].lo, list[from].hi = lo, hi
		*r = slices.Delete(list, from+1, to)
		return
	}
	*r = slices.Insert(list, from, struct{ lo, hi int64 }{lo, hi})
}
