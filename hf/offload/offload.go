// Package offload reads and writes the weights of a model as accelerate stores what it has
// offloaded to disk: index.json, and each tensor as bare bytes in a file of its name, or a
// link to where it is in a safetensors file.
package offload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/safetensors"
	"spillway/shape"
	"spillway/tensorfile"
)

// IndexName lists the tensors of a folder.
const IndexName = "index.json"

// maxIndex bounds an index, in bytes.
const maxIndex = 100_000_000

// Folder is an open offload folder. Its tensors can be read in place.
type Folder struct {
	tensorfile.List
	disk   vfs.FS
	dir    string
	linked map[string]*safetensors.File // by path
}

// Format is the layout as package tensorfile opens it.
var Format = tensorfile.Format{Name: "offload", OpenFolder: func(disk vfs.FS, dir string) (tensorfile.Source, error) {
	there, err := vfs.Exists(disk, filepath.Join(dir, IndexName))
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, tensorfile.ErrNoWeights
	}
	return OpenOn(disk, dir)
}}

// OpenOn opens a folder of a disk. The caller closes it.
func OpenOn(disk vfs.FS, dir string) (*Folder, error) {
	f := &Folder{disk: disk, dir: dir, linked: map[string]*safetensors.File{}}
	raw, err := vfs.ReadFile(disk, filepath.Join(dir, IndexName), maxIndex)
	if err == nil {
		err = f.readIndex(raw)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("offload folder %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// Close closes the safetensors files that the folder refers to.
func (f *Folder) Close() error {
	var errs []error
	for _, file := range f.linked {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// indexEntry is what the index says of a tensor: its shape, or where it is linked to.
type indexEntry struct {
	DType string       `json:"dtype"`
	Shape *shape.Shape `json:"shape,omitempty"`
	File  string       `json:"safetensors_file,omitempty"`
	Name  string       `json:"weight_name,omitempty"`
}

// readIndex reads names one by one: encoding/json would hide a name given twice.
func (f *Folder) readIndex(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%s begins with %v, want an object (%v)", IndexName, t, err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var e indexEntry
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		if err := f.add(key.(string), e); err != nil { // keys of objects are strings
			return fmt.Errorf("tensor %q: %w", key, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%s has more text after its end", IndexName)
	}
	return nil
}

func (f *Folder) add(name string, e indexEntry) error {
	if _, twice := f.Tensor(name); twice {
		return errors.New("it is there twice")
	}
	t, err := dtype.Parse(e.DType)
	if err != nil {
		return err
	}
	if t.Block() {
		return fmt.Errorf("its dtype %q is not one of plain elements", e.DType)
	}
	find := f.rawFile
	if e.File != "" {
		find = f.linkedFile
	}
	tensor, err := find(name, t, e)
	if err != nil {
		return err
	}
	return f.Add(tensor)
}

// rawFile is a tensor in a file of its own.
func (f *Folder) rawFile(name string, t dtype.Type, e indexEntry) (none tensorfile.Tensor, err error) {
	file, err := datName(name)
	if err != nil {
		return none, err
	}
	if e.Shape == nil {
		return none, errors.New("it has neither a shape nor a safetensors_file")
	}
	bytes, err := tensorfile.Size(t, *e.Shape)
	if err != nil {
		return none, err
	}
	path := filepath.Join(f.dir, file)
	info, err := f.disk.Stat(path)
	if err != nil {
		return none, err
	}
	if info.Size != bytes {
		return none, fmt.Errorf("%v of %v needs %d bytes, %s has %d", *e.Shape, t, bytes, path, info.Size)
	}
	return tensorfile.Tensor{Name: name, Type: t, Shape: *e.Shape, Bytes: bytes, Path: path, Data: lazyFile{f.disk, path}, InPlace: true}, nil
}

// linkedFile is a tensor in a safetensors file. The index must name the type it has there.
func (f *Folder) linkedFile(name string, t dtype.Type, e indexEntry) (none tensorfile.Tensor, err error) {
	file := f.linked[e.File]
	if file == nil {
		if file, err = safetensors.OpenOn(f.disk, e.File); err != nil {
			return none, err
		}
		f.linked[e.File] = file
	}
	found, ok := file.Tensor(e.Name)
	if !ok {
		return none, fmt.Errorf("%s has no tensor %q", e.File, e.Name)
	}
	if found.Type != t {
		return none, fmt.Errorf("it is %v in %s and the index asks for %v: save it as that", found.Type, e.File, t)
	}
	found.Name = name
	return found, nil
}

// datName is the file of a tensor; a name that leads out of the folder is refused.
func datName(name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\\\x00") {
		return "", errors.New("its name is not the name of a file")
	}
	return name + ".dat", nil
}

// lazyFile is a file that is open only while it is read: a folder has one for each tensor,
// more than a process may hold open.
type lazyFile struct {
	disk vfs.FS
	path string
}

func (f lazyFile) ReadAt(p []byte, off int64) (int, error) {
	file, err := f.disk.Open(f.path)
	if err != nil {
		return 0, err
	}
	n, err := file.ReadAt(p, off)
	if late := file.Close(); err == nil {
		err = late
	}
	return n, err
}
