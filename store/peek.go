package store

import (
	"errors"
	"io/fs"
	"path/filepath"

	"spillway/internal/vfs"
)

// Held is the iteration of the state that a folder holds, without opening it as a
// disk. ErrNone where it holds none.
func LastCommit(dir string) (iteration int64, err error) {
	m, err := readManifest(vfs.OS, filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return none, ErrNoCommit
	}
	if err != nil {
		return none, err
	}
	return m.Iteration, nil
}

// Room is how many bytes a disk in a folder has room for in all, those that it holds
// now included. The folder need not exist yet.
func Capacity(dir string) (int64, error) {
	names, err := vfs.OS.List(dir)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		return Capacity(filepath.Dir(dir))
	}
	if err != nil {
		return 0, err
	}
	room, err := vfs.OS.Free(dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if _, ours := pageFileNumber(name); !ours {
			continue
		}
		info, err := vfs.OS.Stat(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		room += info.Size
	}
	return room, nil
}
