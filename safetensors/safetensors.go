// Package safetensors reads and writes the file format of the same name: eight
// bytes of header length, a JSON header that gives each tensor a type, a shape and
// a range of bytes, and the bytes, without gaps.
//
// Files are read in place: opening one reads its header alone, and a tensor is a
// window on the file, so a model may be far larger than memory. Files are hostile
// until proven well-formed: every length is checked against the real size of the file
// before anything is allocated for it. Writing is a stream too: the tensors are
// declared first and their bytes follow in order.
//
// A model is often split into several files with an index; Set joins them. Format is how
// package tensorfile opens either.
package safetensors

import (
	"fmt"

	"spillway/dtype"
	"spillway/shape"
	"spillway/tensorfile"
)

// Limits on what a file may declare. The header limit is the format's own.
const (
	MaxHeader  = 100_000_000 // bytes
	MaxTensors = 1 << 18
	maxDims    = 64
	prefix     = 8 // bytes of the header length
)

// metadataKey is the one name in a header that is not a tensor.
const metadataKey = "__metadata__"

// Info is what a header says of one tensor.
type Info struct {
	Name   string
	Type   dtype.Type
	Shape  shape.Shape
	Offset int64 // of the first byte, from the start of the file
	Bytes  int64
}

// Header is the checked content of a header. Tensors are in file order: each begins
// where the one before it ends, and the last ends with the file.
type Header struct {
	Tensors  []Info
	Metadata map[string]string
	start    int64 // where the first tensor begins
}

// FileBytes is the size of the whole file.
func (h *Header) FileBytes() int64 {
	if n := len(h.Tensors); n > 0 {
		return h.Tensors[n-1].Offset + h.Tensors[n-1].Bytes
	}
	return h.start
}

// size is the storage of a tensor in bytes, or an error where the format has no
// such type or 63 bits do not count the bytes.
func size(t dtype.Type, s shape.Shape) (int64, error) {
	if t.Safetensors() == "" {
		return 0, fmt.Errorf("the format has no element type %v", t)
	}
	return tensorfile.Size(t, s)
}
