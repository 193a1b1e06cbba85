package vfs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// HeldError says that another process writes to the same place.
type HeldError struct {
	Path   string
	Holder string // who: "process 4711 (spillway train), since 2026-02-03 14:02:11"
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is being written by %s: wait for it, or write elsewhere", e.Path, e.Holder)
}

// Claim keeps other processes from writing to a file or folder of this computer until it is
// released, or until this process ends, however it does. Who comes second gets a HeldError, which
// names the first. What is written at path need not exist yet; the folder that it is
// in must.
func Claim(path string) (release func() error, err error) {
	name := lockName(path)
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			if errors.Is(err, ErrLocked) {
				err = &HeldError{path, holderOf(f)}
			}
			return nil, errors.Join(err, f.Close())
		}
		// Who held it before may have removed the file, so that nobody else will find it.
		if !isNamed(f, name) {
			f.Close() // nothing was written
			continue
		}
		// What one that was killed has said of itself goes first.
		if err = f.Truncate(0); err == nil {
			_, err = fmt.Fprintf(f, "process %d (%s), since %s", os.Getpid(), commandName(), time.Now().Format(time.DateTime))
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return func() error { return unclaim(f, name) }, nil
	}
}

const lockSuffix = ".lock"

// lockName is the file that is locked while something is written at path.
func lockName(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+lockSuffix)
}

// isNamed says whether a name still leads to an open file.
func isNamed(f *os.File, name string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(name)
	return err == nil && os.SameFile(mine, there)
}

// unclaim removes a lock file that this process has locked, and lets it go.
func unclaim(f *os.File, name string) error {
	if !openNames {
		err := f.Close()
		os.Remove(name) // fails where somebody else has it by now
		return err
	}
	err := os.Remove(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = nil // somebody removed the folder
	}
	return errors.Join(err, f.Close())
}

// RemoveStaleLocks removes the locks in a folder that processes which were killed have left.
func RemoveStaleLocks(dir string) error {
	names, err := OS.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path, isLock := strings.CutSuffix(name, lockSuffix)
		if path, isHidden := strings.CutPrefix(path, "."); isLock && isHidden && path != "" {
			removeUnlocked(filepath.Join(dir, name), unclaim)
		}
	}
	return nil
}

// removeUnlocked removes a file of this computer that nobody has locked. It leaves those that
// somebody has, and those that it may not remove.
func removeUnlocked(name string, remove func(f *os.File, name string) error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return
	}
	if lock(f) != nil || !isNamed(f, name) {
		f.Close() // nothing was written
		return
	}
	_ = remove(f, name) // the next one tries again
}

// command is what this process does, as others read it.
var command atomic.Pointer[string]

// SetCommand says what this process does, such as "spillway train", for those who want to
// write to the same place. Without it they read the name of the program.
func SetCommand(name string) { command.Store(&name) }

func commandName() string {
	if name := command.Load(); name != nil {
		return *name
	}
	program, _ := os.Executable() // "" is fine
	return filepath.Base(program)
}

// holderOf reads who has locked a file. The first moment after it was locked the file says
// nothing yet, or names a process that was killed.
func holderOf(f *os.File) string {
	for range 1000 {
		time.Sleep(time.Millisecond)
		b := make([]byte, 1<<10)
		n, err := f.ReadAt(b, 0)
		if n > 0 || err != nil && err != io.EOF {
			return cmp.Or(string(b[:n]), "another process")
		}
	}
	return "another process"
}
