package vfs

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Block is the size in bytes that offsets, lengths and addresses of reads and writes in
// place must be multiples of.
const Block = 4096

// InPlace is an open file that is read and written anywhere in whole blocks, past
// the page cache where the file system can. Its methods may be called from several
// goroutines. A read that meets the end of the file gives io.EOF with the bytes
// before it.
type InPlace interface {
	opened
	// Reserve makes the file at least so long, with space on the disk for every byte;
	// bytes not yet written read as zeros.
	Reserve(bytes int64) error
	// Modified is when bytes of the file last changed, in nanoseconds since 1970; 0 where the disk does
	// not know. It allocates nothing, so that it may be asked after each read.
	Modified() (int64, error)
}

// aligned refuses what direct I/O cannot do, on every kind of disk alike.
func aligned(name string, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	if at%Block != 0 || len(p)%Block != 0 || off%Block != 0 || off < 0 {
		return fmt.Errorf("%s: %d bytes at %d of the file and %#x of memory: all must be multiples of %d: %w", name, len(p), off, at, Block, syscall.EINVAL)
	}
	return nil
}

// inPlaceFile is a file of this computer. It makes its own system calls: os.File continues
// after a short read, at an offset where direct I/O cannot.
type inPlaceFile struct {
	osFile
	direct atomic.Bool
	status fileStatus
}

// OpenInPlace implements FS.
func (osFS) OpenInPlace(name string, write bool) (InPlace, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR | os.O_CREATE
	}
	f, direct, err := openDirect(name, flag)
	if err != nil {
		return nil, err
	}
	file := &inPlaceFile{osFile: osFile{f}}
	file.direct.Store(direct)
	return file, nil
}

// ReadAt implements InPlace.
func (f *inPlaceFile) ReadAt(p []byte, off int64) (int, error) {
	return f.transfer(pread, "read", io.EOF, p, off)
}

// WriteAt implements InPlace.
func (f *inPlaceFile) WriteAt(p []byte, off int64) (int, error) {
	return f.transfer(pwrite, "write", io.ErrShortWrite, p, off)
}

// transfer repeats a system call until all bytes are done. A call that stops inside a block,
// or does nothing, ends it with the error short: direct I/O cannot continue there.
func (f *inPlaceFile) transfer(call func(f *os.File, p []byte, off int64) (int, error), op string, short error, p []byte, off int64) (done int, err error) {
	if err := aligned(f.Name(), p, off); err != nil {
		return 0, err
	}
	for done < len(p) {
		direct := f.direct.Load()
		n, err := call(f.File, p[done:], off+int64(done))
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EINVAL && direct:
			// Some file systems accept direct I/O when opened and refuse it here.
			if err := dropDirect(f.File); err != nil {
				return done, err
			}
			f.direct.Store(false)
			continue
		case err != nil:
			return done, &os.PathError{Op: op, Path: f.Name(), Err: err}
		}
		done += n
		if n == 0 || n%Block != 0 {
			return done, short
		}
	}
	return done, nil
}

// Modified implements InPlace.
func (f *inPlaceFile) Modified() (int64, error) { return f.status.modified(f.File) }

// Reserve implements InPlace.
func (f *inPlaceFile) Reserve(bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if err := reserve(f.File, bytes); err != nil {
		return &os.PathError{Op: "reserve", Path: f.Name(), Err: err}
	}
	return nil
}

// lengthen makes a file at least so long without reserving space.
func lengthen(f *os.File, bytes int64) error {
	i, err := f.Stat()
	if err != nil || i.Size() >= bytes {
		return err
	}
	return f.Truncate(bytes)
}
