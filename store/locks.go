package store

import (
	"slices"
	"sync"
)

// pageLocks are locks on ranges of pages: several readers or one writer of each page. There
// are as many at once as workers copy, so a list will do.
type pageLocks struct {
	mu      sync.Mutex
	changed sync.Cond // of mu
	held    []lockedRange
}

type lockedRange struct {
	lo, hi int64
	write  bool
}

// lock waits until no lock on a page of lo to hi conflicts.
func (r *pageLocks) lock(lo, hi int64, write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for slices.ContainsFunc(r.held, func(h lockedRange) bool { return h.lo < hi && lo < h.hi && (write || h.write) }) {
		r.changed.Wait()
	}
	r.held = append(r.held, lockedRange{lo, hi, write})
}

// unlock ends one lock of the same range.
func (r *pageLocks) unlock(lo, hi int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.held, func(h lockedRange) bool { return h.lo == lo && h.hi == hi })
	r.held = slices.Delete(r.held, i, i+1)
	r.changed.Broadcast()
}
