package vfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Draft is a file that is being written under a hidden name, and appears whole under its own
// or not at all. A file that has the name stays as it is until then.
type Draft struct {
	fullWriter
	disk          FS
	name, partial string
}

// Begin starts a file. It removes drafts of the same file that processes which were killed
// have left.
func Begin(d FS, name string) (*Draft, error) {
	if d == OS {
		sweepDrafts(name)
	}
	for {
		w := &Draft{disk: d, name: name, partial: partialFile(name)}
		f, err := d.Create(w.partial)
		if err != nil {
			return nil, err
		}
		w.file = f
		if file, real := f.(osFile); real {
			// Where files cannot be locked nobody sweeps.
			if err := lock(file.File); errors.Is(err, ErrLocked) || !isNamed(file.File, w.partial) {
				f.Close() // somebody sweeps it away
				continue
			}
		}
		return w, nil
	}
}

// Commit makes the bytes durable and gives the file its name. After an error without
// ErrInDoubt the old file is still there.
func (w *Draft) Commit() error {
	if err := w.file.Sync(); err != nil {
		return errors.Join(err, w.Discard())
	}
	closed := error(nil)
	if !openNames {
		if closed = w.file.Close(); closed != nil {
			return errors.Join(closed, RemoveAll(w.disk, w.partial))
		}
	}
	err := w.disk.Rename(w.partial, w.name)
	if err == nil {
		err = w.disk.SyncDir(filepath.Dir(w.name))
	}
	if openNames { // until here it is locked, so that nobody sweeps it away
		closed = w.file.Close()
	}
	if err = errors.Join(err, closed); err != nil {
		return fmt.Errorf("%w: %w", ErrInDoubt, err)
	}
	return nil
}

// Discard removes the draft.
func (w *Draft) Discard() error {
	return errors.Join(w.file.Close(), RemoveAll(w.disk, w.partial))
}

// partialFile is a hidden name that nobody else uses.
func partialFile(name string) string {
	dir, base := filepath.Split(name)
	return fmt.Sprintf("%s.%s.%016x%s", dir, base, rand.Uint64(), partialSuffix)
}

// sweepDrafts removes drafts of a file that nobody writes any more.
func sweepDrafts(name string) {
	dir, base := filepath.Split(name)
	names, err := OS.List(filepath.Clean(dir))
	if err != nil {
		return // making the draft says why
	}
	for _, n := range names {
		if len(n) != len(filepath.Base(partialFile(name))) || !strings.HasPrefix(n, "."+base+".") || !IsPartial(n) {
			continue
		}
		removeUnlocked(filepath.Join(dir, n), func(f *os.File, name string) error {
			if !openNames {
				f.Close() // nothing was written
				return os.Remove(name)
			}
			return errors.Join(os.Remove(name), f.Close())
		})
	}
}
