package vfs

import (
	"errors"
	"os"
	"path/filepath"
)

// TempDir makes a folder for what only this process needs, in the system's folder for such
// things. It removes those of the same prefix that processes which were killed have left.
func TempDir(prefix string) (dir string, remove func() error, err error) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"-*")) // the pattern is sound
	for _, dir := range old {
		if held, err := OS.Lock(dir); err == nil {
			_ = errors.Join(RemoveAll(OS, dir), held.Close()) // the next one tries again
		}
	}
	for {
		dir, err := os.MkdirTemp("", prefix+"-*")
		if err != nil {
			return "", nil, err
		}
		held, err := OS.Lock(dir)
		if there, _ := Exists(OS, dir); !there || errors.Is(err, ErrLocked) {
			if err == nil {
				held.Close() // nothing was written
			}
			continue // somebody swept it away before it was locked
		}
		if err != nil {
			return "", nil, errors.Join(err, os.Remove(dir))
		}
		return dir, func() error { return errors.Join(RemoveAll(OS, dir), held.Close()) }, nil
	}
}

// Unname removes the name of an open file at once, so that nothing is left of it however the
// process ends; after closing it, after must be called. Where open files cannot be removed it
// is after that removes it.
func Unname(f *os.File) (after func() error, err error) {
	if openNames {
		return func() error { return nil }, os.Remove(f.Name())
	}
	return func() error { return os.Remove(f.Name()) }, nil
}
