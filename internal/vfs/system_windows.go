package vfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// outOfSpace are the errors of a full disk.
var outOfSpace = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}

// openNames says that an open file can be renamed and removed. Here it cannot.
const openNames = false

// lockedByte is the byte of a file that its lock is on. Others cannot read a locked range, so
// it lies behind whatever the file says.
const lockedByte = 1 << 30

// lock takes the lock of an open file. It ends when that is closed or the process ends,
// however it does; ErrLocked where somebody else has it.
func lock(f *os.File) error {
	at := windows.Overlapped{Offset: lockedByte}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// folderLock is a file next to a folder, since folders themselves cannot be locked.
type folderLock struct{ *os.File }

func (l folderLock) Close() error {
	err := l.File.Close()
	os.Remove(l.Name()) // unless somebody else has it by now
	return err
}

// lockFolder locks a folder.
func lockFolder(dir string) (io.Closer, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".folder"+lockSuffix), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		f.Close() // nothing was written
		return nil, err
	}
	return folderLock{f}, nil
}

// syncFolder does nothing: the file system logs changes of names itself.
func syncFolder(string) error { return nil }

func pread(f *os.File, p []byte, off int64) (int, error) {
	n, err := f.ReadAt(p, off)
	if err == io.EOF {
		err = nil // the caller sees by n how far it went
	}
	return n, err
}

func pwrite(f *os.File, p []byte, off int64) (int, error) { return f.WriteAt(p, off) }

// FreeSpace is the space that the user may still take in a folder, in bytes.
func FreeSpace(dir string) (int64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, &os.PathError{Op: "free space", Path: dir, Err: err}
	}
	return int64(free), nil
}

// fileStatus describes an open file.
type fileStatus struct{}

func (*fileStatus) modified(f *os.File) (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.ModTime().UnixNano(), nil
}
