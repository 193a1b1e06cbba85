package planner

import "slices"

// occupancy knows which offsets are taken at which moments. Time is a tree: a node
// is a stretch of moments, its children the halves of it, leaves are moments. What
// lies side by side is one range, so that lists stay short however many spans there
// are.
type occupancy struct {
	rank   []int32 // by moment, from -1 on: its leaf
	leaves int
	// whole, by node: taken at all its moments, by spans the node is a part of. some:
	// taken at one of its moments at least.
	whole, some []ranges
	meets       []*ranges // scratch of lowestGap
}

// ranges of offsets, sorted and apart.
type ranges []struct{ lo, hi int64 }

// newOccupancy is empty, for spans that will be asked for or put.
func newOccupancy(spans []*span) *occupancy {
	last := -1
	for _, s := range spans {
		last = max(last, s.to)
	}
	o := &occupancy{rank: make([]int32, last+2)}
	for _, s := range spans { // only moments where something begins or ends matter
		o.rank[s.from+1], o.rank[s.to+1] = 1, 1
	}
	for i, mark := range o.rank {
		o.rank[i] = int32(o.leaves)
		o.leaves += int(mark)
	}
	o.whole, o.some = make([]ranges, 2*o.leaves), make([]ranges, 2*o.leaves)
	return o
}

// put takes the offsets of a span up to an end.
func (o *occupancy) put(s *span, end int64) {
	o.parts(s, func(node int) {
		o.whole[node].add(s.offset, end)
		for ; node > 0; node /= 2 {
			o.some[node].add(s.offset, end)
		}
	})
}

// parts visits the nodes that together are the time of a span.
func (o *occupancy) parts(s *span, visit func(node int)) {
	lo, hi := int(o.rank[s.from+1])+o.leaves, int(o.rank[s.to+1])+o.leaves+1
	for ; lo < hi; lo, hi = lo/2, hi/2 {
		if lo&1 == 1 {
			visit(lo)
			lo++
		}
		if hi&1 == 1 {
			hi--
			visit(hi)
		}
	}
}

// lowestGap is the least offset from which on a span's bytes are free all its time.
func (o *occupancy) lowestGap(s *span) int64 {
	o.meets = o.meets[:0]
	o.parts(s, func(node int) {
		o.meet(&o.some[node])
		for node /= 2; node > 0; node /= 2 {
			o.meet(&o.whole[node])
		}
	})
	var at int64
	for again := true; again; {
		again = false
		for _, r := range o.meets {
			if free := r.free(at, s.bytes); free > at {
				at, again = free, true
			}
		}
	}
	return at
}

func (o *occupancy) meet(r *ranges) {
	if len(*r) > 0 && !slices.Contains(o.meets, r) {
		o.meets = append(o.meets, r)
	}
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
