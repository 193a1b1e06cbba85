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

// reserve takes the space at once; a file system that cannot only gets the length,
// and may run full later.
func reserve(f *os.File, bytes int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return lengthen(f, bytes)
	}
	return err
}
