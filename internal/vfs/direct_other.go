//go:build !linux

package vfs

import "os"

// openDirect opens through the page cache: only Linux has direct I/O.
func openDirect(name string, flag int) (f *os.File, direct bool, err error) {
	f, err = os.OpenFile(name, flag, 0o666)
	return f, false, err
}

func dropDirect(*os.File) error { return nil }

// send leaves the writing to Sync.
func (osFile) send(int64, int64) {}

// reserve only sets the length; the disk may run full later.
func reserve(f *os.File, bytes int64) error { return lengthen(f, bytes) }
