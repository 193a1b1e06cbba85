// Package gguf reads the model files of llama.cpp. One file holds everything: metadata with
// the architecture and its sizes, the tokenizer and the chat template, and the tensors, mostly
// in block types of package quant.
//
//	f, err := gguf.Open("model-Q4_K_M.gguf")
//	f.Architecture()                         // "llama"
//	t, ok := f.Tensor("model.layers.0.self_attn.q_proj.weight")
//
// Tensors have the names, shapes and order of rows that transformers gives them, so that
// everything above reads a GGUF file like a folder: files.go writes the config and the
// tokenizer that such a folder has next to its weights.
package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/tensorfile"
)

// Extension is how the files end.
const Extension = ".gguf"

// IsFile says whether a path is that of a GGUF file: by its name, or, where it has another one,
// by its first bytes.
func IsFile(disk vfs.FS, path string) bool {
	if strings.HasSuffix(path, Extension) {
		return true
	}
	if info, err := disk.Stat(path); err != nil || info.Dir {
		return false
	}
	f, err := disk.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // opened for reading
	var magic [4]byte
	n, _ := f.ReadAt(magic[:], 0)
	return string(magic[:n]) == "GGUF"
}

// Format is the format as package tensorfile opens it.
var Format = tensorfile.Format{
	Name: "gguf", Extension: Extension,
	Open: func(disk vfs.FS, path string) (tensorfile.Source, error) { return OpenOn(disk, path) },
	OpenFolder: func(disk vfs.FS, dir string) (tensorfile.Source, error) {
		path, err := inFolder(disk, dir)
		if err != nil {
			return nil, err
		}
		return OpenOn(disk, path)
	},
}

// File is an open model: one file, or the parts of a split one.
type File struct {
	tensorfile.List
	Metadata Metadata // of the first part

	arch        *architecture
	parts       []vfs.File
	headers     []int64           // by part: bytes before the data
	ropeFactors tensorfile.Tensor // no weight; Name is "" where there is none
}

// Open opens a file and the other parts of it, where it is split. The caller closes it.
func Open(path string) (*File, error) { return OpenOn(vfs.OS, path) }

// OpenOn is Open on a given disk.
func OpenOn(disk vfs.FS, path string) (*File, error) {
	f := &File{}
	if err := f.open(disk, path); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f, nil
}

func (f *File) open(disk vfs.FS, path string) error {
	first, err := f.part(disk, path)
	if err != nil {
		return err
	}
	paths, err := splitPaths(path, first.metadata)
	if err != nil {
		return err
	}
	heads := []*header{first}
	for _, other := range paths[1:] {
		h, err := f.part(disk, other)
		if err != nil {
			return fmt.Errorf("part %s: %w", filepath.Base(other), err)
		}
		heads = append(heads, h)
	}
	f.Metadata = first.metadata
	if f.arch, err = architectureOf(f.Metadata); err != nil {
		return err
	}
	count := int64(0)
	for i, h := range heads {
		f.headers = append(f.headers, h.bytes)
		count += int64(len(h.tensors))
		for _, t := range h.tensors {
			if err := f.add(t, paths[i], f.parts[i]); err != nil {
				return err
			}
		}
	}
	if want := f.Metadata.intOr("split.tensors.count", count); want != count {
		return fmt.Errorf("its %d parts have %d tensors, split.tensors.count is %d", len(heads), count, want)
	}
	return nil
}

// part opens one file and reads its header.
func (f *File) part(disk vfs.FS, path string) (*header, error) {
	file, err := vfs.OpenSteady(disk, path)
	if err != nil {
		return nil, err
	}
	f.parts = append(f.parts, file)
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	return readHeader(file, size)
}

// add gives a tensor its name in transformers and its place.
func (f *File) add(t tensorInfo, path string, file vfs.File) error {
	name, err := f.arch.tensorName(t.name)
	if err != nil {
		return err
	}
	full := tensorfile.Tensor{Name: name, Type: t.kind, Shape: t.shape, Bytes: t.bytes, Path: path, Data: file, Offset: t.offset, InPlace: true}
	if name == "" {
		full.Name = t.name
		f.ropeFactors = full
		return nil
	}
	if heads := f.arch.permutedHeads(t.name); heads > 0 {
		if full, err = unpermuted(full, heads); err != nil {
			return err
		}
	}
	return f.Add(full)
}

// Close closes all parts.
func (f *File) Close() error {
	var errs []error
	for _, p := range f.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Architecture is what the file calls the kind of model: "llama".
func (f *File) Architecture() string { return f.arch.name }

// inFolder finds the file of a folder: its only one, or the first part of its only split one.
func inFolder(disk vfs.FS, dir string) (string, error) {
	names, err := disk.List(dir)
	if err != nil {
		return "", err
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		_, index, _, split := splitName(n)
		return !strings.HasSuffix(n, Extension) || split && index != 1
	})
	switch len(names) {
	case 0:
		return "", tensorfile.ErrNoWeights
	case 1:
		return filepath.Join(dir, names[0]), nil
	}
	slices.Sort(names)
	return "", fmt.Errorf("%s has %d models in GGUF files, %s; name one of them", dir, len(names), strings.Join(names, ", "))
}

// kinds are the element types by their number in files.
var kinds = map[uint32]dtype.Type{
	0: dtype.F32, 1: dtype.F16, 2: quant.Q4_0, 3: quant.Q4_1, 6: quant.Q5_0, 7: quant.Q5_1, 8: quant.Q8_0, 10: quant.Q2_K, 11: quant.Q3_K, 12: quant.Q4_K,
	13: quant.Q5_K, 14: quant.Q6_K, 20: quant.IQ4NL, 23: quant.IQ4XS, 24: dtype.I8, 25: dtype.I16, 26: dtype.I32, 27: dtype.I64, 28: dtype.F64, 30: dtype.BF16, 39: quant.MXFP4,
}

// unknownKinds are types that files may have and that are not read, by number.
var unknownKinds = map[uint32]string{
	9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}
