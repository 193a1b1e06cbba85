// Package offload reads and writes weights in the format of accelerate's disk offload:
// index.json, and for every tensor a file with its raw bytes or a reference into a
// safetensors file.
package offload

import (
	"bytes"
	"cmp"
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

// Format registers the format with package tensorfile.
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

// indexEntry is the entry of a tensor in the index: its shape, or a reference into a
// safetensors file.
type indexEntry struct {
	DType string       `json:"dtype"`
	Shape *shape.Shape `json:"shape,omitempty"`
	File  string       `json:"safetensors_file,omitempty"`
	Name  string       `json:"weight_name,omitempty"`
}

// readIndex reads the names one by one, because encoding/json would hide a name given
// twice.
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
		return errors.New("it occurs twice")
	}
	t, err := dtype.Parse(e.DType)
	if err != nil {
		return err
	}
	if t.Block() {
		return fmt.Errorf("its dtype %q is quantized in blocks, which this format does not have", e.DType)
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

// rawFile returns a tensor that has a file of its own.
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
	if err := f.checkInside(path); err != nil {
		return none, err
	}
	if info.Size != bytes {
		return none, fmt.Errorf("%v of %v needs %d bytes, %s has %d", *e.Shape, t, bytes, path, info.Size)
	}
	return tensorfile.Tensor{Name: name, Type: t, Shape: *e.Shape, Bytes: bytes, Path: path, Data: lazyFile{f.disk, path}, InPlace: true}, nil
}

// linkedFile returns a tensor in a safetensors file. Its type there must be that of the
// index.
func (f *Folder) linkedFile(name string, t dtype.Type, e indexEntry) (none tensorfile.Tensor, err error) {
	if filepath.Ext(e.File) != safetensors.Format.Extension {
		return none, fmt.Errorf("its safetensors_file %q is no %s file", e.File, safetensors.Format.Extension)
	}
	path := e.File
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.dir, path)
	}
	if err := f.checkInside(path); err != nil {
		return none, err
	}
	file := f.linked[path]
	if file == nil {
		if file, err = safetensors.OpenOn(f.disk, path); err != nil {
			return none, err
		}
		f.linked[path] = file
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

// checkInside refuses a file outside of the folder and of the model folder that it lies in:
// an index comes from elsewhere, and must not have any file of this computer read.
func (f *Folder) checkInside(path string) error {
	if vfs.Within(path, f.dir) {
		return nil
	}
	model := filepath.Dir(filepath.Clean(f.dir))
	if there, err := vfs.Exists(f.disk, filepath.Join(model, "config.json")); err == nil && there && vfs.Within(path, model) {
		return nil
	}
	return fmt.Errorf("%s is outside of the folder: open the model folder that it is in, or copy it to %s and name it so in %s", path, f.dir, IndexName)
}

// datName returns the file name of a tensor. It refuses a name that leads out of the
// folder.
func datName(name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\\\x00") {
		return "", errors.New("its name is not the name of a file")
	}
	return name + ".dat", nil
}

// lazyFile is a file that is open only while it is read, because a folder has one per
// tensor, more than a process may have open.
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
	return n, cmp.Or(err, file.Close())
}
