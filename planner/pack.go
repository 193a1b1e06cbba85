package planner

import "sort"

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
	order := make([]*span, 0, len(spans))
	for _, s := range spans {
		if s.bytes > 0 {
			order = append(order, s)
		}
	}
	sort.SliceStable(order, func(i, j int) bool {
		if order[i].bytes != order[j].bytes {
			return order[i].bytes > order[j].bytes
		}
		return order[i].from < order[j].from
	})
	var total int64
	placed := make([]*span, 0, len(order)) // by offset
	for _, s := range order {
		s.offset = lowestGap(placed, s, align)
		i := sort.Search(len(placed), func(i int) bool { return placed[i].offset > s.offset })
		placed = append(placed, nil)
		copy(placed[i+1:], placed[i:])
		placed[i] = s
		total = max(total, s.offset+s.bytes)
	}
	return total
}

func lowestGap(placed []*span, s *span, align int64) int64 {
	var end int64
	for _, p := range placed {
		if p.to < s.from || s.to < p.from {
			continue
		}
		if p.offset-end >= s.bytes {
			break
		}
		end = max(end, up(p.offset+p.bytes, align))
	}
	return end
}

// liveMost is the largest sum of spans alive at one moment: what no packing can
// beat.
func liveMost(spans []*span) int64 {
	change := map[int]int64{}
	for _, s := range spans {
		change[s.from] += s.bytes
		change[s.to+1] -= s.bytes
	}
	moments := make([]int, 0, len(change))
	for t := range change {
		moments = append(moments, t)
	}
	sort.Ints(moments)
	var live, most int64
	for _, t := range moments {
		live += change[t]
		most = max(most, live)
	}
	return most
}

func up(n, align int64) int64 { return (n + align - 1) / align * align }

func indexOf(list []int, v int) int {
	for i, x := range list {
		if x == v {
			return i
		}
	}
	return -1
}
