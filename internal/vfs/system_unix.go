//go:build unix

package vfs

import (
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// outOfSpace are the errors of a full disk.
var outOfSpace = []error{syscall.ENOSPC, syscall.EDQUOT}

// openNames says that an open file can be renamed and removed.
const openNames = true

// lock takes the lock of an open file or folder. It ends when that is closed or the process
// ends, however it does; ErrLocked where somebody else has it.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return ErrLocked
	}
	return err
}

// lockFolder opens a folder and locks it.
func lockFolder(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func pread(f *os.File, p []byte, off int64) (int, error)  { return syscall.Pread(int(f.Fd()), p, off) }
func pwrite(f *os.File, p []byte, off int64) (int, error) { return syscall.Pwrite(int(f.Fd()), p, off) }

// FreeSpace is the space that a user without privileges may still take in a folder, in bytes.
func FreeSpace(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// fileStatus is where the system describes an open file, so that asking allocates nothing.
type fileStatus struct {
	mu   sync.Mutex
	stat unix.Stat_t
}

func (s *fileStatus) modified(f *os.File) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch err := unix.Fstat(int(f.Fd()), &s.stat); err {
		case nil:
			return s.stat.Mtim.Nano(), nil
		case unix.EINTR:
		default:
			return 0, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
		}
	}
}
