//go:build unix

package offheap

import (
	"os"

	"golang.org/x/sys/unix"
)

// acquire maps whole pages for size bytes.
func acquire(size int64) ([]byte, error) {
	page := int64(os.Getpagesize())
	return unix.Mmap(-1, 0, int((size+page-1)/page*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func release(pages []byte) error { return unix.Munmap(pages) }
