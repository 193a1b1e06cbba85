package planner

import (
	"cmp"
	"slices"
)

// span is memory that is needed from one moment to another, both included.
type span struct {
	bytes    int64
	from, to int
	offset   int64 // the answer
}

// pack gives every span an offset so that spans alive at the same time do not
// overlap, and returns the total. Largest first, each at the lowest gap among
// those already placed that live at the same time: simple, and close to the least
// possible because the sizes in a model are few.
func pack(spans []*span, align int64) int64 {
	order := largestFirst(spans)
	taken := newOccupancy(order)
	var total int64
	for _, s := range order {
		s.offset = taken.lowestGap(s)
		taken.put(s, alignUp(s.offset+s.bytes, align))
		total = max(total, s.offset+s.bytes)
	}
	return total
}

// largestFirst is the order of packing, without what takes no room.
func largestFirst(spans []*span) []*span {
	order := make([]*span, 0, len(spans))
	for _, s := range spans {
		if s.bytes > 0 {
			order = append(order, s)
		}
	}
	slices.SortStableFunc(order, func(a, b *span) int {
		if a.bytes != b.bytes {
			return cmp.Compare(b.bytes, a.bytes)
		}
		return cmp.Compare(a.from, b.from)
	})
	return order
}

// liveMost is the largest sum of spans alive at one moment: what no packing can
// beat. Moments are numbered from -1, spans nobody uses, to before n.
func liveMost(spans []*span, n int) int64 {
	change := make([]int64, n+2)
	for _, s := range spans {
		change[s.from+1] += s.bytes
		change[s.to+2] -= s.bytes
	}
	var live, most int64
	for _, by := range change {
		live += by
		most = max(most, live)
	}
	return most
}

func alignUp(n, align int64) int64 { return (n + align - 1) / align * align }

func indexOf(list []int, v int) int {
	for i, x := range list {
		if x == v {
			return i
		}
	}
	return -1
}
