package pass

import (
	"cmp"
	"math"
	"slices"
)

// Span is memory that is needed from one moment to another, both included. Moments are
// numbers of instructions or of nodes of a program.
type Span struct {
	Bytes    int64
	From, To int
	Offset   int64 // what Pack finds
}

// Pack gives every span an offset so that spans alive at the same time do not overlap, and
// returns the total. The largest come first, each at the lowest gap among those already
// placed that are alive with it: simple, and close to the least possible because a model
// has few sizes.
func Pack(spans []*Span, align int64) int64 { return PackBy(spans, align, 0) }

// Orders is how many orders of packing there are.
const Orders = 12

// PackBy is Pack in another order: from 0, the largest first, on it counts more and more for how long a span lives. Where large
// spans live short, holes stay between those that live long; which order leaves fewest is found by trying.
func PackBy(spans []*Span, align int64, by int) int64 {
	total, _ := packSorted(largestFirst(spans), align, by, math.MaxInt64)
	return total
}

// packSorted is PackBy of spans with the largest first. It ends early, with done false, where they take more than a limit.
func packSorted(order []*Span, align int64, by int, limit int64) (total int64, done bool) {
	if by > 0 {
		order = longerFirst(order, by)
	}
	taken := newOccupancy(order)
	defer taken.release()
	for _, s := range order {
		taken.find(s)
		s.Offset = taken.lowestGap(s)
		if total = max(total, s.Offset+s.Bytes); total > limit {
			return total, false
		}
		taken.put(s, AlignUp(s.Offset+s.Bytes, align))
	}
	return total, true
}

// longerFirst is another order of spans, see PackBy; of equal ones the order stays.
func longerFirst(order []*Span, by int) []*Span {
	type weighed struct {
		*Span
		weight float64
	}
	list := make([]weighed, len(order))
	for i, s := range order {
		list[i] = weighed{s, float64(s.Bytes) * math.Pow(float64(s.To-s.From+1), float64(by)/(Orders-1))}
	}
	slices.SortStableFunc(list, func(a, b weighed) int { return cmp.Compare(b.weight, a.weight) })
	sorted := make([]*Span, len(list))
	for i, w := range list {
		sorted[i] = w.Span
	}
	return sorted
}

// largestFirst is the order of packing, without spans of no bytes: of equally large ones the earlier first, then as they are
// listed.
func largestFirst(spans []*Span) []*Span {
	type key struct {
		bytes    int64
		from, at int
	}
	keys := make([]key, 0, len(spans))
	for i, s := range spans {
		if s.Bytes > 0 {
			keys = append(keys, key{s.Bytes, s.From, i})
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		switch {
		case a.bytes != b.bytes:
			return cmp.Compare(b.bytes, a.bytes)
		case a.from != b.from:
			return a.from - b.from
		}
		return a.at - b.at
	})
	order := make([]*Span, len(keys))
	for i, k := range keys {
		order[i] = spans[k.at]
	}
	return order
}

// PeakLive is the largest sum of spans alive at one moment, which no packing can beat.
// Moments are numbered from -1, for spans that nobody uses, to n-1.
func PeakLive(spans []*Span, n int) int64 {
	change := make([]int64, n+2)
	for _, s := range spans {
		change[s.From+1] += s.Bytes
		change[s.To+2] -= s.Bytes
	}
	var live, most int64
	for _, by := range change {
		live += by
		most = max(most, live)
	}
	return most
}

// AlignUp rounds up to a multiple of the alignment.
func AlignUp(n, align int64) int64 { return (n + align - 1) / align * align }
