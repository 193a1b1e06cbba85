package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"spillway/internal/stopwatch"
	"spillway/internal/vfs"
	"spillway/units"
)

const (
	diskBlock   = 4 << 20 // bytes per read or write
	diskWorkers = 4       // requests in flight: enough to keep a drive busy
	diskAlign   = 4096    // of buffers and offsets, for direct I/O
)

// diskSpeed is what diskRates measured; direct is false where reads and writes went through
// the page cache.
type diskSpeed struct {
	read, write units.Rate
	direct      bool
}

// diskRates writes a file of about n bytes in the folder, reads it back past the page
// cache. Its name is gone at once, so that a kill leaves nothing.
func diskRates(dir string, n int64) (s diskSpeed, err error) {
	path := filepath.Join(dir, fmt.Sprintf(".disk-rate-%d.tmp", os.Getpid()))
	f, direct, err := openDirect(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return s, err
	}
	gone, err := vfs.Unname(f)
	if err != nil {
		return s, errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, f.Close(), gone()) }()
	blocks := max(n/diskBlock, diskWorkers)
	written, err := timeBlocks(blocks, f.WriteAt)
	if err != nil {
		return s, err
	}
	syncStart := stopwatch.Now()
	if err := f.Sync(); err != nil {
		return s, err
	}
	written += stopwatch.Since(syncStart)
	read, err := timeBlocks(blocks, f.ReadAt)
	if err != nil {
		return s, err
	}
	total := float64(blocks * diskBlock)
	return diskSpeed{units.Rate(total / read.Seconds()), units.Rate(total / written.Seconds()), direct}, nil
}

// timeBlocks runs do on every block of the file, from a few goroutines.
func timeBlocks(blocks int64, do func([]byte, int64) (int, error)) (time.Duration, error) {
	errs := make([]error, diskWorkers)
	buffers := make([][]byte, diskWorkers)
	for w := range buffers {
		buffers[w] = alignedBuffer()
	}
	var done sync.WaitGroup
	start := stopwatch.Now()
	for w := range diskWorkers {
		done.Go(func() {
			for b := int64(w); b < blocks && errs[w] == nil; b += diskWorkers {
				_, errs[w] = do(buffers[w], b*diskBlock)
			}
		})
	}
	done.Wait()
	return max(stopwatch.Since(start), 1), errors.Join(errs...)
}

// alignedBuffer is one block of numbers that no drive compresses.
func alignedBuffer() []byte {
	b := make([]byte, diskBlock+diskAlign)
	at := (diskAlign - int(uintptr(unsafe.Pointer(&b[0]))%diskAlign)) % diskAlign
	b = b[at : at+diskBlock]
	state := uint32(1)
	for i := range b {
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		b[i] = byte(state)
	}
	return b
}
