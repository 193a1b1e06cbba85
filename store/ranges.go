package store

import (
	"slices"
	"sync"
)

// ranges are locks on ranges of pages: several readers or one writer of each page.
// There are as many at once as workers copy, so a list will do.
type ranges struct {
	mu      sync.Mutex
	changed *sync.Cond
	held    []heldRange
}

type heldRange struct {
	lo, hi int64
	write  bool
}

func (r *ranges) init() { r.changed = sync.NewCond(&r.mu) }

// take waits until no other holds a page of lo to hi in a way that conflicts.
func (r *ranges) take(lo, hi int64, write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for slices.ContainsFunc(r.held, func(h heldRange) bool { return h.lo < hi && lo < h.hi && (write || h.write) }) {
		r.changed.Wait()
	}
	r.held = append(r.held, heldRange{lo, hi, write})
}

// give ends one take of the same range.
func (r *ranges) give(lo, hi int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.held, func(h heldRange) bool { return h.lo == lo && h.hi == hi })
	r.held = slices.Delete(r.held, i, i+1)
	r.changed.Broadcast()
}
