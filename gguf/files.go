package gguf

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

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
func Tokenizer(path string) ([]byte, error) {
	file, err := vfs.OS.Open(path)
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

// Folder writes the small files into a folder of the user's cache, for whoever opens a
// tokenizer or a template by its path, and gives the folder. The same model has the same
// folder.
func (f *File) Folder() (string, error) {
	files, err := f.Files()
	if err != nil {
		return "", err
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	sum := sha256.New()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		binary.Write(sum, binary.LittleEndian, int64(len(files[name])))
		sum.Write(files[name])
	}
	dir := filepath.Join(base, "spillway", "gguf", hex.EncodeToString(sum.Sum(nil)[:16]))
	if err := vfs.MkdirAll(vfs.OS, dir); err != nil {
		return "", fmt.Errorf("storing the tokenizer of a GGUF file: %w", err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if old, err := os.ReadFile(path); err == nil && string(old) == string(text) {
			continue
		}
		if err := vfs.ReplaceBytes(vfs.OS, path, text); err != nil {
			return "", fmt.Errorf("storing the tokenizer of a GGUF file: %w", err)
		}
	}
	return dir, nil
}
