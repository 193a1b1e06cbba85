package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"spillway/internal/vfs"
)

// LastCommit is the iteration of the committed state in a folder, without opening it as a
// disk. ErrNoCommit where there is none.
func LastCommit(dir string) (iteration int64, err error) {
	m, err := readManifest(vfs.OS, filepath.Join(dir, manifestName))
	if err != nil {
		return none, err
	}
	return m.Iteration, nil
}

// CheckFolder refuses a folder that nothing can be written to, before anybody needs it. It need not
// exist yet: then it must be possible to make it.
func CheckFolder(dir string) error {
	parent := vfs.ExistingParent(vfs.OS, dir)
	probe := filepath.Join(parent, fmt.Sprintf(".spillway-%d", os.Getpid()))
	err := vfs.OS.Mkdir(probe)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = vfs.OS.Remove(probe)
	}
	if err != nil {
		return fmt.Errorf("the folder %s for what does not fit in memory: nothing can be stored in %s: %w; name a folder that can be written", dir, parent, err)
	}
	return nil
}

// Capacity is how many bytes a disk in a folder can hold in all, those that it holds now
// included. The folder need not exist yet.
func Capacity(dir string) (int64, error) {
	names, err := vfs.OS.List(dir)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		return Capacity(filepath.Dir(dir))
	}
	if err != nil {
		return 0, err
	}
	capacity, err := vfs.OS.Free(dir)
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
		capacity += info.Size
	}
	return capacity, nil
}
