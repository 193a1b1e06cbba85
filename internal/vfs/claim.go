package vfs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// HeldError says that another process writes to the same place.
type HeldError struct {
	Path   string
	Holder string // who: "process 4711 (spillway), since 14:02:11"
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is being written by %s: wait for it, or write elsewhere", e.Path, e.Holder)
}

// Claim keeps other processes from writing to a file or folder of this computer until it is
// released, or until this process ends, however it does. Who comes second gets a HeldError, which
// names the first. What is written at path need not exist yet; the folder that it is
// in must.
func Claim(path string) (release func() error, err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+lockSuffix)
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			holder, _ := io.ReadAll(io.LimitReader(f, 1<<10)) // it says more, no more
			if errors.Is(err, syscall.EWOULDBLOCK) {
				err = &HeldError{path, cmp.Or(string(holder), "another process")} // that has not said who it is yet
			}
			return nil, errors.Join(err, f.Close())
		}
		// Who held it before may have removed the file, so that nobody else will find it.
		mine, err := f.Stat()
		if there, gone := os.Stat(name); err == nil && (gone != nil || !os.SameFile(mine, there)) {
			f.Close() // nothing was written
			continue
		}
		if err == nil {
			program, _ := os.Executable() // "" is fine
			_, err = fmt.Fprintf(f, "process %d (%s), since %s", os.Getpid(), filepath.Base(program), time.Now().Format(time.TimeOnly))
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return func() error {
			err := os.Remove(name)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				err = nil // somebody removed the folder
			}
			return errors.Join(err, f.Close())
		}, nil
	}
}

const lockSuffix = ".lock"
