package driver

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"spillway/internal/dl"
)

// library says what a library is called and how to get it.
type library struct {
	what  string
	names []string // newest first
	how   string
}

var (
	libcuda = library{"NVIDIA's driver", []string{"libcuda.so.1", "libcuda.so"},
		"install the driver of the GPU; containers need its libraries passed in"}
	libnvrtc = library{"the compiler of kernels", []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
		"install the CUDA toolkit, or the Python package nvidia-cuda-nvrtc, and name its folder if it lies in an unusual place"}
	libcublaslt = library{"matmuls", []string{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
		"install the CUDA toolkit, or the Python package nvidia-cublas, and name its folder if it lies in an unusual place"}
	libnvml  = library{"counting memory by process", []string{"libnvidia-ml.so.1"}, "install the driver of the GPU"}
	libcudnn = library{"attention at the GPU's limits", []string{"libcudnn.so.9"},
		"install cuDNN 9, or the Python package nvidia-cudnn, and name its folder if it lies in an unusual place"}
)

// usual are the folders in which toolkits and Python environments keep libraries;
// patterns as of package filepath.
var usual = []string{
	"/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/opt/cuda/lib64",
	"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/*-linux-gnu",
	"/usr/local/lib/python3*/*-packages/nvidia/*/lib", "/usr/lib/python3*/*-packages/nvidia/*/lib",
	"/opt/*/lib/python3*/*-packages/nvidia/*/lib", "/opt/*/.venv/lib/python3*/*-packages/nvidia/*/lib",
}

// below are the places of libraries in a folder that a caller names: the folder
// itself, a toolkit's root, a Python environment's root.
var below = []string{"", "lib64", "lib", "lib/python3*/*-packages/nvidia/*/lib"}

// MissingError says that a library was not found.
type MissingError struct {
	What  string // "the compiler of kernels"
	Names []string
	Tried []string // folders, besides the loader's own
	How   string   // to get it
	Cause error    // why the last file that exists could not be opened, or what the loader said
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("no library for %s: tried %s on the loader's path and in %d folders (%v); %s",
		e.What, strings.Join(e.Names, ", "), len(e.Tried), e.Cause, e.How)
}

// Unwrap gives the cause.
func (e *MissingError) Unwrap() error { return e.Cause }

// find opens a library: from the named folders, then by the loader, then from the
// usual places.
func find(l library, folders []string) (*dl.Library, error) {
	var named []string
	for _, f := range folders {
		for _, b := range below {
			named = append(named, filepath.Join(f, b))
		}
	}
	missing := &MissingError{What: l.what, Names: l.names, How: l.how, Cause: errors.New("nothing of that name")}
	if lib := openIn(l, expand(named), missing); lib != nil {
		return lib, nil
	}
	for _, name := range l.names {
		lib, err := dl.Open(name)
		if err == nil {
			return lib, nil
		}
		missing.Cause = err
	}
	if lib := openIn(l, expand(usual), missing); lib != nil {
		return lib, nil
	}
	return nil, missing
}

// openIn tries a library's names in folders and records what it tried.
func openIn(l library, folders []string, missing *MissingError) *dl.Library {
	for _, f := range folders {
		missing.Tried = append(missing.Tried, f)
		for _, name := range l.names {
			path := filepath.Join(f, name)
			if found, _ := filepath.Glob(path); len(found) == 0 {
				continue
			}
			lib, err := dl.Open(path)
			if err == nil {
				return lib
			}
			missing.Cause = err
		}
	}
	return nil
}

// expand lists the folders that patterns stand for, newest version first.
func expand(patterns []string) []string {
	var all []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			continue // a folder whose name is no pattern cannot be searched
		}
		slices.Reverse(found)
		all = append(all, found...)
	}
	return all
}

// binder looks functions up and remembers the first error.
type binder struct {
	lib *dl.Library
	err error
}

func (b *binder) find(name string) dl.Func {
	f, err := b.lib.Func(name)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("%w; the library is too old, a newer driver or toolkit has it", err)
	}
	return f
}
