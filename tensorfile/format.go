package tensorfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"spillway/internal/vfs"
)

// Format is a way weights are stored: a kind of file, or a layout of several files in a
// folder.
type Format struct {
	Name string // "safetensors"
	// Extension is how its files end: ".safetensors". "" is a format that has no single
	// files.
	Extension string
	// Open opens one file.
	Open func(disk vfs.FS, path string) (Source, error)
	// OpenFolder opens the weights of a model in a folder, or answers ErrNoWeights. nil
	// opens the file "model" with the extension.
	OpenFolder func(disk vfs.FS, dir string) (Source, error)
}

// ErrNoWeights says that a folder has no weights in any known format.
var ErrNoWeights = errors.New("no weights")

var (
	mu      sync.RWMutex
	formats []Format
)

// Register makes formats known. A folder that has weights in several is read in the
// format that was registered first. Register panics on a second format of the same name.
func Register(list ...Format) {
	mu.Lock()
	defer mu.Unlock()
	for _, f := range list {
		if f.Name == "" || slices.ContainsFunc(formats, func(g Format) bool { return g.Name == f.Name }) {
			panic("tensorfile: empty or second registration of format " + f.Name)
		}
		formats = append(formats, f)
	}
}

// Formats lists the known formats, in the order they were registered.
func Formats() []Format {
	mu.RLock()
	defer mu.RUnlock()
	return slices.Clone(formats)
}

// Open opens one file by its extension.
func Open(disk vfs.FS, path string) (Source, error) {
	var known []string
	for _, f := range Formats() {
		if f.Extension != "" && strings.HasSuffix(path, f.Extension) {
			s, err := f.Open(disk, path)
			if err != nil {
				return nil, err // a typed nil is no source
			}
			return s, nil
		}
		known = append(known, f.Extension)
	}
	return nil, fmt.Errorf("%s is in no known format of weights; known are files named %s", path, strings.Join(known, ", "))
}

// OpenStem opens the file of a folder that has a given name and the extension of any
// format: "adapter_model". Where there is none, the error is ErrNoWeights.
func OpenStem(disk vfs.FS, dir, stem string) (Source, error) {
	return firstOf(dir, func(f Format) (Source, error) { return f.openStem(disk, dir, stem) })
}

// OpenFolder opens the weights of a model in a folder, in the first format that finds
// some. Where none does, the error is ErrNoWeights.
func OpenFolder(disk vfs.FS, dir string) (Source, error) {
	return firstOf(dir, func(f Format) (Source, error) {
		if f.OpenFolder == nil {
			return f.openStem(disk, dir, "model")
		}
		return f.OpenFolder(disk, dir)
	})
}

// firstOf opens the weights of a folder in the first format that does not answer
// ErrNoWeights.
func firstOf(dir string, open func(Format) (Source, error)) (Source, error) {
	for _, f := range Formats() {
		s, err := open(f)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, ErrNoWeights) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w in %s", ErrNoWeights, dir)
}

func (f Format) openStem(disk vfs.FS, dir, stem string) (Source, error) {
	if f.Extension == "" {
		return nil, ErrNoWeights
	}
	path := filepath.Join(dir, stem+f.Extension)
	there, err := vfs.Exists(disk, path)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, ErrNoWeights
	}
	return f.Open(disk, path)
}
