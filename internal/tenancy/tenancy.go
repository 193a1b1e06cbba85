// Package tenancy records which buffer had which bytes of an arena last. Plans give the same
// bytes to many buffers one after the other, and each buffer must wait until the ones that
// had its bytes before are no longer used.
package tenancy

import (
	"slices"
	"sort"
)

// Map records the last buffer of every byte of an arena, as sorted ranges that do not
// overlap. The zero value is an arena that no buffer has used.
type Map struct {
	list   []tenant
	before []int32 // scratch of Take
}

type tenant struct {
	lo, hi int64
	buffer int32
}

// Take gives the bytes [lo, hi) to a buffer and returns the buffers that had parts of them
// last, in the order of their bytes. The list is valid until the next call.
func (m *Map) Take(buffer int, lo, hi int64) []int32 {
	m.before = m.before[:0]
	if lo >= hi {
		return nil
	}
	from := sort.Search(len(m.list), func(i int) bool { return m.list[i].hi > lo })
	to := from
	for ; to < len(m.list) && m.list[to].lo < hi; to++ {
		m.before = append(m.before, m.list[to].buffer)
	}
	// The first and the last of them may reach beyond [lo, hi) and keep what does.
	now := [3]tenant{1: {lo, hi, int32(buffer)}}
	first, end := 1, 2
	if to > from {
		if x := m.list[from]; x.lo < lo {
			now[0], first = tenant{x.lo, lo, x.buffer}, 0
		}
		if x := m.list[to-1]; x.hi > hi {
			now[2], end = tenant{hi, x.hi, x.buffer}, 3
		}
	}
	m.list = slices.Replace(m.list, from, to, now[first:end]...)
	return m.before
}
