package safetensors

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"spillway/internal/vfs"
	"spillway/tensorfile"
)

// Names of a model's weights in a folder: one file, or shards with an index.
const (
	SingleName = "model.safetensors"
	IndexName  = "model.safetensors.index.json"
)

// Set is the weights of one model, in one file or in several.
type Set struct {
	tensorfile.List
	files []*File
}

// OpenSetOn opens the weights in a folder: model.safetensors, or the shards of
// model.safetensors.index.json. Where there is neither, the error is
// tensorfile.ErrNoWeights. The caller closes the set.
func OpenSetOn(disk vfs.FS, dir string) (*Set, error) {
	single, err := vfs.Exists(disk, filepath.Join(dir, SingleName))
	if err != nil {
		return nil, err
	}
	index, err := vfs.Exists(disk, filepath.Join(dir, IndexName))
	switch {
	case err != nil:
		return nil, err
	case single && index:
		return nil, fmt.Errorf("%s holds both %s and %s: remove the one that does not belong to the model", dir, SingleName, IndexName)
	case index:
		return openShards(disk, dir)
	case single:
		return openFiles(disk, dir, []string{SingleName})
	}
	return nil, fmt.Errorf("%w in %s", tensorfile.ErrNoWeights, dir)
}

func openShards(disk vfs.FS, dir string) (*Set, error) {
	path := filepath.Join(dir, IndexName)
	raw, err := vfs.ReadFile(disk, path, MaxHeader)
	if err != nil {
		return nil, err
	}
	fileOf, err := parseIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	shards := slices.Compact(slices.Sorted(maps.Values(fileOf)))
	s, err := openFiles(disk, dir, shards)
	if err != nil {
		return nil, tensorfile.MissingPart(path, err)
	}
	if err := s.checkIndex(fileOf); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), s.Close())
	}
	return s, nil
}

// openFiles opens files whose tensors all have different names.
func openFiles(disk vfs.FS, dir string, names []string) (*Set, error) {
	s := &Set{}
	for _, name := range names {
		f, err := OpenOn(disk, filepath.Join(dir, name))
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.files = append(s.files, f)
		for _, t := range f.Tensors() {
			if err := s.Add(t); err != nil {
				return nil, errors.Join(err, s.Close())
			}
		}
	}
	return s, nil
}

// checkIndex makes sure that the index and the shards name the same tensors in the
// same files.
func (s *Set) checkIndex(fileOf map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(fileOf)) {
		t, ok := s.Tensor(name)
		if !ok {
			return fmt.Errorf("tensor %q should be in %s, which does not have it", name, fileOf[name])
		}
		if got := filepath.Base(t.Path); got != fileOf[name] {
			return fmt.Errorf("tensor %q should be in %s and is in %s", name, fileOf[name], got)
		}
	}
	all := s.Tensors()
	for _, t := range all {
		if fileOf[t.Name] == "" {
			return fmt.Errorf("tensor %q in %s is missing from the index; %d tensors are indexed, the shards hold %d", t.Name, t.Path, len(fileOf), len(all))
		}
	}
	return nil
}

// Close closes every file.
func (s *Set) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// parseIndex reads an index and returns the file of each tensor. File names that
// lead out of the folder are refused.
func parseIndex(raw []byte) (map[string]string, error) {
	fileOf := map[string]string{}
	err := scan(raw, "index", func(s *scanner) {
		s.object(func(key string) {
			if key != "weight_map" {
				s.skip()
				return
			}
			s.object(func(name string) {
				file := s.str()
				if strings.ContainsAny(file, "/\\:\x00") || strings.HasPrefix(file, ".") || !strings.HasSuffix(file, ".safetensors") {
					panic(s.fail("%q is not the plain name of a .safetensors file", file))
				}
				fileOf[name] = file
			})
		})
	})
	if err == nil && len(fileOf) == 0 {
		err = errors.New("the weight_map is missing or empty")
	}
	return fileOf, err
}
