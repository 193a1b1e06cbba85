// Package offheap allocates memory outside the Go heap. It is zeroed, the garbage
// collector does not scan it, and freeing returns it to the system at once. It is the only
// package that maps memory.
//
// The garbage collector lets the Go heap grow to twice the live data. With tens of
// gigabytes of weights that would decide whether a model fits.
package offheap

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Region is one allocation. It must be freed.
type Region struct {
	mu     sync.Mutex
	bytes  []byte // of the requested size
	mapped []byte // whole pages
}

// mapped is the number of bytes in all regions that are not freed, in whole pages.
var mapped atomic.Int64

// Mapped returns the number of bytes mapped now, for tests that look for leaks.
func Mapped() int64 { return mapped.Load() }

// Alloc maps a region. huge asks the system for huge pages, which save address
// translation for data that is used again and again.
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

// Bytes returns the memory; nil after Free.
func (r *Region) Bytes() []byte { return r.bytes }

// Free returns the memory to the system. It must not be used afterwards. A second Free
// is an error.
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
