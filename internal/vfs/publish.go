package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// MkdirAll makes a folder and its missing parents, durably. Several processes may make the
// same folder at once.
func MkdirAll(d FS, dir string) error {
	info, err := d.Stat(dir)
	if err == nil && !info.Dir {
		return fmt.Errorf("%s is a file where a folder is needed", dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := MkdirAll(d, parent); err != nil {
		return err
	}
	if err := d.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.SyncDir(parent)
}

// Partial is the hidden name next to dir under which Publish prepares it.
func Partial(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+partialSuffix)
}

// Publish makes a folder that is either absent or whole, whatever happens: fill writes and
// syncs files into a hidden folder next to it, which then gets its name in one rename. What
// an attempt that was killed left under the hidden name is removed first; after an error
// nothing is left. For a single file see Replace.
func Publish(d FS, dir string, fill func(partial string) error) error {
	partial := Partial(dir)
	if err := RemoveAll(d, partial); err != nil {
		return fmt.Errorf("removing what an earlier attempt left at %s: %w", partial, err)
	}
	if err := prepare(d, partial, fill); err != nil {
		return errors.Join(err, RemoveAll(d, partial))
	}
	if err := d.Rename(partial, dir); err != nil {
		return errors.Join(err, RemoveAll(d, partial))
	}
	return d.SyncDir(filepath.Dir(dir))
}

// prepare fills a new folder and makes the names in it durable, before anything else refers
// to them.
func prepare(d FS, partial string, fill func(string) error) error {
	if err := d.Mkdir(partial); err != nil {
		return err
	}
	if err := fill(partial); err != nil {
		return err
	}
	return d.SyncDir(partial)
}
