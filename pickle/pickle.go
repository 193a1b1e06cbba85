// Package pickle reads the weights in PyTorch's own files, .bin and .pt: a zip with one
// pickled object and the bytes of every storage.
//
// A pickle is a program, and loading one in Python runs it. Here it is read by a machine that knows
// only what a dictionary of tensors needs: dictionaries, lists, tuples, texts, numbers, and
// the names of a handful of functions and types that make tensors. Anything else is refused
// by its name, and nothing is ever called.
package pickle

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/shape"
	"spillway/tensorfile"
)

// Extension is how the files end.
const Extension = ".bin"

// Names of files in a folder.
const (
	SingleName = "pytorch_model.bin"
	IndexName  = "pytorch_model.bin.index.json"
)

// Format is the format as package tensorfile opens it: single files, and the one or several
// files of a model's folder.
var Format = tensorfile.Format{
	Name: "pytorch", Extension: Extension,
	Open:       func(disk vfs.FS, path string) (tensorfile.Source, error) { return OpenOn(disk, path) },
	OpenFolder: openFolder,
}

// Bounds: of the pickled object and of an index, in bytes, and of a zip's files.
const (
	maxPickle = 64 << 20
	maxIndex  = 16 << 20
	maxFiles  = 1 << 20
)

// File is the tensors of one or several open files. It is safe for concurrent reads.
type File struct {
	tensorfile.List
	files []vfs.File
}

// OpenOn opens one file. The caller closes it.
func OpenOn(disk vfs.FS, name string) (*File, error) {
	f := &File{}
	if err := f.add(disk, name); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, nil
}

// openFolder opens the one or several files of a model.
func openFolder(disk vfs.FS, dir string) (tensorfile.Source, error) {
	raw, err := vfs.ReadFile(disk, filepath.Join(dir, IndexName), maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		name, err := single(disk, dir)
		if err != nil {
			return nil, err
		}
		return OpenOn(disk, filepath.Join(dir, name))
	}
	if err != nil {
		return nil, err
	}
	var index struct {
		Files map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, IndexName), err)
	}
	f := &File{}
	for _, name := range slices.Sorted(maps.Values(unique(index.Files))) {
		if name != filepath.Base(name) || !strings.HasSuffix(name, Extension) {
			err = fmt.Errorf("it names the file %q, which is not one of its folder", name)
		} else {
			err = tensorfile.MissingPart(filepath.Join(dir, IndexName), f.add(disk, filepath.Join(dir, name)))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", filepath.Join(dir, IndexName), err), f.Close())
		}
	}
	for name := range index.Files {
		if _, ok := f.Tensor(name); !ok {
			return nil, errors.Join(fmt.Errorf("%s names the tensor %q, which none of its files has", filepath.Join(dir, IndexName), name), f.Close())
		}
	}
	return f, nil
}

// single is the name of a folder's one file with weights: pytorch_model.bin, or else the only
// .pt or .pth that is neither the state of a trainer nor of Meta's own form, with other names.
func single(disk vfs.FS, dir string) (string, error) {
	there, err := vfs.Exists(disk, filepath.Join(dir, SingleName))
	if there || err != nil {
		return SingleName, err
	}
	names, err := disk.List(dir)
	if err != nil {
		return "", err
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		return !slices.Contains([]string{".pt", ".pth"}, filepath.Ext(n)) || slices.ContainsFunc([]string{"optimizer", "scheduler", "scaler", "rng_state", "training_args", "consolidated"}, func(state string) bool { return strings.HasPrefix(n, state) })
	})
	if len(names) != 1 {
		return "", tensorfile.ErrNoWeights
	}
	return names[0], nil
}

// unique has every value once.
func unique(m map[string]string) map[string]string {
	once := map[string]string{}
	for _, v := range m {
		once[v] = v
	}
	return once
}

// add opens a file and adds its tensors.
func (f *File) add(disk vfs.FS, name string) error {
	file, err := vfs.OpenSteady(disk, name)
	if err != nil {
		return err
	}
	f.files = append(f.files, file)
	size, err := file.Size()
	if err != nil {
		return err
	}
	if isLegacy(file) {
		return f.addLegacy(name, file, size)
	}
	archive, err := zip.NewReader(file, size)
	if err != nil {
		return fmt.Errorf("it is not a file of PyTorch: neither a zip, as it writes them since 1.6, nor the form before that: %w", err)
	}
	if len(archive.File) > maxFiles {
		return fmt.Errorf("it has %d files, at most %d are read", len(archive.File), maxFiles)
	}
	entries := map[string]*zip.File{}
	var object *zip.File
	for _, e := range archive.File {
		entries[e.Name] = e
		if path.Base(e.Name) == "data.pkl" && strings.Count(e.Name, "/") == 1 {
			object = e
		}
	}
	if object == nil {
		return fmt.Errorf("it is a zip without NAME/data.pkl, so not a file of PyTorch")
	}
	raw, err := contents(object)
	if err != nil {
		return err
	}
	tensors, err := load(raw)
	if err != nil {
		return err
	}
	if order, ok := entries[path.Dir(object.Name)+"/byteorder"]; ok {
		if text, err := contents(order); err != nil || strings.TrimSpace(string(text)) != "little" {
			return fmt.Errorf("its numbers are in the byte order %q, read is little (%w)", text, err)
		}
	}
	for _, t := range tensors {
		entry := entries[path.Dir(object.Name)+"/data/"+t.storage.key]
		if entry == nil {
			return fmt.Errorf("tensor %q is in the storage %q, which is not there", t.name, t.storage.key)
		}
		if err := f.place(t, entry, name, file, size); err != nil {
			return fmt.Errorf("tensor %q: %w", t.name, err)
		}
	}
	return nil
}

// contents reads a small file of the zip.
func contents(e *zip.File) ([]byte, error) {
	if e.UncompressedSize64 > maxPickle {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", e.Name, e.UncompressedSize64, maxPickle)
	}
	r, err := e.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := make([]byte, e.UncompressedSize64)
	for n := 0; n < len(b); {
		k, err := r.Read(b[n:])
		if n += k; err != nil && n < len(b) {
			return nil, fmt.Errorf("reading %s: %w", e.Name, err)
		}
	}
	return b, nil
}

// place finds the bytes of a tensor in the zip.
func (f *File) place(t tensor, entry *zip.File, name string, file vfs.File, size int64) error {
	at, err := entry.DataOffset()
	if err != nil {
		return err
	}
	have := int64(entry.UncompressedSize64)
	switch {
	case entry.Method != zip.Store:
		return fmt.Errorf("its storage is compressed, which PyTorch never does")
	case entry.UncompressedSize64 > uint64(size) || at > size-have:
		return fmt.Errorf("its storage has %d bytes at %d of a file of %d", entry.UncompressedSize64, at, size)
	}
	return f.put(t, name, file, at, have)
}

// put adds a tensor of a storage that has so many bytes at a place of the file.
func (f *File) put(t tensor, name string, file vfs.File, at, have int64) error {
	bytes, err := tensorfile.Size(t.storage.kind, t.shape)
	if err != nil {
		return err
	}
	if !contiguous(t.shape, t.strides) {
		return fmt.Errorf("its strides %v are not those of a contiguous tensor of the shape %v; save it after .contiguous()", t.strides, t.shape)
	}
	width := t.storage.kind.Bytes(1)
	if t.offset < 0 || t.offset > have/width || bytes > have-t.offset*width {
		return fmt.Errorf("it has %d bytes from element %d on of a storage of %d bytes", bytes, t.offset, have)
	}
	return f.Add(tensorfile.Tensor{Name: t.name, Type: t.storage.kind, Shape: t.shape, Bytes: bytes, Path: name, Data: file, Offset: at + t.offset*width, InPlace: true})
}

// contiguous says whether strides are those of rows one after another; dimensions of 1 may
// have any.
func contiguous(s shape.Shape, strides []int64) bool {
	if len(s) != len(strides) {
		return false
	}
	next := int64(1)
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == 0 {
			return true
		}
		if s[i] != 1 && strides[i] != next {
			return false
		}
		next *= s[i]
	}
	return true
}

// Close closes all files.
func (f *File) Close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// storages are the types of storages, by their names in PyTorch.
var storages = map[string]dtype.Type{
	"DoubleStorage": dtype.F64, "FloatStorage": dtype.F32, "HalfStorage": dtype.F16, "BFloat16Storage": dtype.BF16, "LongStorage": dtype.I64, "IntStorage": dtype.I32, "ShortStorage": dtype.I16,
	"CharStorage": dtype.I8, "ByteStorage": dtype.U8, "BoolStorage": dtype.Bool,
}
