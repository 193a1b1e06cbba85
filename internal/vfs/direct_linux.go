package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openDirect opens past the page cache where the file system can.
func openDirect(name string, flag int) (f *os.File, direct bool, err error) {
	f, err = os.OpenFile(name, flag|unix.O_DIRECT, 0o666)
	if err == nil || !errors.Is(err, unix.EINVAL) {
		return f, err == nil, err
	}
	f, err = os.OpenFile(name, flag, 0o666)
	return f, false, err
}

// dropDirect goes on with an open file through the page cache.
func dropDirect(f *os.File) error {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags&^unix.O_DIRECT)
	}
	if err != nil {
		return &os.PathError{Op: "fcntl", Path: f.Name(), Err: err}
	}
	return nil
}

// send starts the writing of a range and lets the page cache forget what was sent before
// it, having waited for that: so memory holds two ranges at most.
func (f osFile) send(from, n int64) {
	fd := int(f.Fd())
	_ = unix.SyncFileRange(fd, from, n, unix.SYNC_FILE_RANGE_WRITE)
	if before := min(from, sendBytes); before > 0 {
		const whole = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		_ = unix.SyncFileRange(fd, from-before, before, whole)
		_ = unix.Fadvise(fd, from-before, before, unix.FADV_DONTNEED)
	}
}

// reserve takes the space at once; a file system that cannot only gets the length,
// and may run full later.
func reserve(f *os.File, bytes int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return lengthen(f, bytes)
	}
	return err
}
