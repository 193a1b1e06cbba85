package gguf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"spillway/internal/vfs"
)

// Files are the small files that a folder of transformers has next to the weights, by name:
// config.json, and where the file has them, the tokenizer with its settings and the tokens
// that end a text.
func (f *File) Files() (map[string][]byte, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"config.json": config}
	if files["generation_config.json"], err = f.generation(); err != nil {
		return nil, err
	}
	v, err := f.vocabulary()
	if err != nil {
		return nil, err
	}
	if v != nil {
		if files["tokenizer.json"], err = v.tokenizer(); err != nil {
			return nil, err
		}
		if files["tokenizer_config.json"], err = v.settings(); err != nil {
			return nil, err
		}
	}
	for name, text := range files {
		if text == nil {
			delete(files, name)
		}
	}
	return files, nil
}

// Tokenizer is the tokenizer.json of a file, which needs to have nothing else.
func Tokenizer(path string) ([]byte, error) { return TokenizerOn(vfs.OS, path) }

// TokenizerOn is Tokenizer on a given disk.
func TokenizerOn(disk vfs.FS, path string) ([]byte, error) {
	file, err := disk.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	h, err := readHeader(file, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	v, err := (&File{Metadata: h.metadata}).vocabulary()
	if err == nil && v == nil {
		err = fmt.Errorf("it has no tokenizer")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v.tokenizer()
}

// filesVersion is counted up when the same file gives other small files.
const filesVersion = 5

// Folder gives a folder of the user's cache with the small files, for whoever opens a
// tokenizer or a template by its path. They are written once: the folder is named by the
// checksum of all that they are made from, and config.json comes last.
func (f *File) Folder() (string, error) {
	sum := sha256.New()
	factors, err := f.factors()
	if err != nil {
		return "", err
	}
	fmt.Fprintln(sum, filesVersion, factors)
	for i, part := range f.parts {
		if _, err := io.Copy(sum, io.NewSectionReader(part, 0, f.headers[i])); err != nil {
			return "", err
		}
	}
	name := hex.EncodeToString(sum.Sum(nil)[:16])
	bases := cacheFolders()
	for _, base := range bases {
		dir := filepath.Join(base, name)
		if there, err := vfs.Exists(vfs.OS, filepath.Join(dir, lastFile)); err == nil && there {
			return dir, nil
		}
	}
	files, err := f.Files()
	if err != nil {
		return "", err
	}
	var errs []error
	for _, base := range bases {
		dir := filepath.Join(base, name)
		err := storeFiles(dir, files)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("storing the tokenizer of a GGUF file: %w; XDG_CACHE_HOME or TMPDIR names another place", errors.Join(errs...))
}

// lastFile is written when all others are there.
const lastFile = "config.json"

// cacheFolders are where the small files may be stored, the best place first: the user's cache, and for users who have none
// that can be written, as in containers, a folder of theirs among temporary files.
func cacheFolders() (list []string) {
	if base, err := os.UserCacheDir(); err == nil {
		list = append(list, filepath.Join(base, "spillway", "gguf"))
	}
	return append(list, filepath.Join(os.TempDir(), fmt.Sprintf("spillway-%d", os.Getuid()), "gguf"))
}

// storeFiles writes the small files to a folder.
func storeFiles(dir string, files map[string][]byte) error {
	if err := vfs.MkdirAll(vfs.OS, dir); err != nil {
		return err
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(name string) bool { return name == lastFile })
	for _, name := range append(names, lastFile) {
		if err := vfs.ReplaceBytes(vfs.OS, filepath.Join(dir, name), files[name]); err != nil {
			return err
		}
	}
	return nil
}
