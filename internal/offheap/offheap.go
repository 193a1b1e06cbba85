// Package offheap gives memory outside the Go heap: exact in size, zero at first,
// never scanned by the collector and back at the system the moment it is freed. It is
// the only package that maps memory.
//
// The collector lets the heap grow to twice what is alive; with tens of gigabytes of
// weights that is the difference between fitting and not.
package offheap

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Region is one piece of memory. It must be freed.
type Region struct {
	mu     sync.Mutex
	bytes  []byte // as long as asked for
	mapped []byte // whole pages
}

// mapped counts the bytes of all regions not yet freed, in whole pages.
var mapped atomic.Int64

// Mapped is how many bytes are mapped now, for tests that look for leaks.
func Mapped() int64 { return mapped.Load() }

// Alloc maps a region. Huge asks the system to back it by huge pages where it can,
// which spares address translation for data that is used again and again.
func Alloc(size int64, huge bool) (*Region, error) {
	if size < 0 {
		return nil, fmt.Errorf("mapping %d bytes: the size is negative", size)
	}
	if size == 0 {
		return &Region{bytes: []byte{}}, nil
	}
	pages, err := acquire(size)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes with %d mapped: %w; free some or plan for less", size, Mapped(), err)
	}
	if huge {
		advise(pages)
	}
	mapped.Add(int64(len(pages)))
	return &Region{bytes: pages[:size:size], mapped: pages}, nil
}

// Bytes is the memory, nil after Free.
func (r *Region) Bytes() []byte { return r.bytes }

// Free gives the memory back. Nobody may use it any more. A second Free is an error.
func (r *Region) Free() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes == nil {
		return fmt.Errorf("freeing memory that was freed before")
	}
	pages := r.mapped
	r.bytes, r.mapped = nil, nil
	if pages == nil {
		return nil
	}
	if err := release(pages); err != nil {
		return fmt.Errorf("unmapping %d bytes: %w", len(pages), err)
	}
	mapped.Add(-int64(len(pages)))
	return nil
}
