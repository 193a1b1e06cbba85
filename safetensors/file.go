package safetensors

import (
	"errors"
	"fmt"

	"spillway/internal/vfs"
	"spillway/tensorfile"
)

// Format is the format as package tensorfile opens it: single files, and the one or
// several files of a model's folder.
var Format = tensorfile.Format{
	Name: "safetensors", Extension: ".safetensors",
	Open:       func(disk vfs.FS, path string) (tensorfile.Source, error) { return OpenOn(disk, path) },
	OpenFolder: func(disk vfs.FS, dir string) (tensorfile.Source, error) { return OpenSetOn(disk, dir) },
}

// File is an open safetensors file. It is safe for concurrent reads.
type File struct {
	tensorfile.List
	header *Header
	file   vfs.File
}

// Open opens a file and reads its header. The caller closes it.
func Open(path string) (*File, error) { return OpenOn(vfs.OS, path) }

// OpenOn is Open on a given disk.
func OpenOn(disk vfs.FS, path string) (*File, error) {
	f, err := vfs.OpenSteady(disk, path)
	if err != nil {
		return nil, err
	}
	open := &File{file: f}
	if err := open.read(path); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return open, nil
}

func (f *File) read(path string) error {
	n, err := f.file.Size()
	if err != nil {
		return err
	}
	if f.header, err = ReadHeader(f.file, n); err != nil {
		return err
	}
	for _, t := range f.header.Tensors {
		err := f.Add(tensorfile.Tensor{Name: t.Name, Type: t.Type, Shape: t.Shape, Bytes: t.Bytes, Path: path, Data: f.file, Offset: t.Offset, InPlace: true})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close ends all use of the file's tensors.
func (f *File) Close() error { return f.file.Close() }
