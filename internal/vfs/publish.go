package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
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

// CheckFinished refuses a folder that was begun and not ended, or whose removal was, by its name.
func CheckFinished(dir string) error {
	name := filepath.Base(dir)
	if IsPartial(name) || strings.HasPrefix(name, ".") && strings.HasSuffix(name, RemovingSuffix) {
		return fmt.Errorf("%s is unfinished: a command that was killed left it, or one is writing it still; run that command again, or remove it", dir)
	}
	return nil
}

// RemovingSuffix ends the hidden names of folders that are being removed.
const RemovingSuffix = ".removing"

// Tidy removes what a process that was killed left next to a folder that it had published.
func Tidy(dir string) error {
	release, err := Claim(dir)
	if err != nil {
		return err
	}
	return errors.Join(RemoveAll(OS, Partial(dir)), release())
}

// Publish makes a folder that is either absent or whole, whatever happens: fill writes and
// syncs files into a hidden folder next to it, which then gets its name in one rename. What
// an attempt that was killed left under the hidden name is removed first; after an error
// nothing is left. For a single file see Replace.
// On the disk of this computer one process publishes to a name at a time: see Claim.
func Publish(d FS, dir string, fill func(partial string) error) (err error) {
	if d == OS {
		release, err := Claim(dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release()) }()
	}
	partial := Partial(dir)
	if err := RemoveAll(d, partial); err != nil {
		return fmt.Errorf("removing what an earlier attempt left at %s: %w", partial, err)
	}
	err = d.Mkdir(partial)
	if err == nil {
		err = fill(partial)
	}
	if err == nil {
		err = d.SyncDir(partial) // names in it are durable before anything else refers to them
	}
	if err == nil {
		err = d.Rename(partial, dir)
	}
	if err != nil {
		return errors.Join(err, RemoveAll(d, partial))
	}
	return d.SyncDir(filepath.Dir(dir))
}
