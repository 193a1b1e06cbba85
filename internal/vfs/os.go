package vfs

import (
	"fmt"
	"io"
	"os"
)

// OS is the disk of this computer.
var OS FS = osFS{}

type osFS struct{}

func (osFS) Open(name string) (File, error)   { return wrap(openRegular(name)) }
func (osFS) Create(name string) (File, error) { return wrap(os.Create(name)) }
func (osFS) Mkdir(name string) error          { return os.Mkdir(name, 0o777) }
func (osFS) Rename(from, to string) error     { return os.Rename(from, to) }
func (osFS) Remove(name string) error         { return os.Remove(name) }

// openRegular opens a file for reading. Pipes and devices are refused: opening or reading
// one may wait for ever.
func openRegular(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fmt.Errorf("%s is a pipe or a device, want a file", name)
	}
	return os.Open(name)
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

func (osFS) Stat(name string) (Info, error) {
	i, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	self, err := os.Lstat(name)
	if err != nil {
		return Info{}, err
	}
	info := Info{Dir: i.IsDir(), Link: self.Mode()&os.ModeSymlink != 0}
	if !info.Dir {
		info.Size = i.Size()
	}
	return info, nil
}

func (osFS) SyncDir(dir string) error { return syncFolder(dir) }

func (osFS) Lock(dir string) (io.Closer, error) {
	l, err := lockFolder(dir)
	if err != nil {
		return nil, &os.PathError{Op: "lock", Path: dir, Err: err}
	}
	return l, nil
}

func (osFS) Free(dir string) (int64, error) { return FreeSpace(dir) }

type osFile struct{ *os.File }

// wrap makes a File of an *os.File; a nil one must not become a File that is not nil.
func wrap(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Modified is when bytes of the file last changed, in nanoseconds since 1970.
func (f osFile) Modified() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.ModTime().UnixNano(), nil
}

func (f osFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}
