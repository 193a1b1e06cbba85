// Package tensorfile is what all file formats of weights have in common. A Tensor has a
// name, a type, a shape and bytes that are read where they are stored; a Source is the
// tensors of one model; a Format says how files become a Source.
//
// Everything above the formats (hf, weights, convert, lora, quant/stored, checkpoint,
// store) knows tensors only as this package describes them, so a new file format is a
// package that gives a Source, and the line that registers it in package hf.
//
// Files are hostile until they are proven well-formed. A format checks every length
// against the real size of the file before it allocates anything; Size does the
// arithmetic.
package tensorfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"spillway/dtype"
	"spillway/shape"
)

// Tensor is a window on an open file: it holds no data of its own. It can be read from
// several goroutines.
type Tensor struct {
	Name  string
	Type  dtype.Type
	Shape shape.Shape
	Bytes int64
	Path  string // of the file it is in

	// Data holds the tensor: its bytes are the Bytes from Offset on.
	Data   io.ReaderAt
	Offset int64
	// InPlace says that Data is the file of that path, so that others may read the
	// tensor from there by their own means. A compressed file does not offer it.
	InPlace bool
}

// ReadAt reads from the tensor's bytes, as an io.ReaderAt.
func (t Tensor) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("tensor %q: reading at the negative offset %d", t.Name, off)
	}
	if off >= t.Bytes {
		return 0, io.EOF
	}
	short := int64(len(p)) > t.Bytes-off
	if short {
		p = p[:t.Bytes-off]
	}
	n, err := t.Data.ReadAt(p, t.Offset+off)
	if n < len(p) {
		return n, fmt.Errorf("tensor %q: read %d of %d bytes at %d of %s: %w", t.Name, n, len(p), t.Offset+off, t.Path, err)
	}
	if short {
		return n, io.EOF
	}
	return n, nil
}

// chunkBytes is how much ReadF32 reads at a time; a multiple of every width.
const chunkBytes = 64 << 10

// chunks are reused between calls: a model is read in very many.
var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// CheckReal refuses a tensor whose elements do not convert to f32: of types other than f64,
// f32, bf16 and f16.
func (t Tensor) CheckReal() error {
	if decoders[t.Type] == nil {
		return fmt.Errorf("tensor %q has elements of type %v, which do not convert to f32", t.Name, t.Type)
	}
	return nil
}

// ReadF32 reads len(dst) elements from the element first on, converted to float32.
func (t Tensor) ReadF32(dst []float32, first int64) error {
	if err := t.CheckReal(); err != nil {
		return err
	}
	decode := decoders[t.Type]
	if n := t.Shape.Elements(); first < 0 || first > n || int64(len(dst)) > n-first {
		return fmt.Errorf("tensor %q has %d elements, %d from element %d were asked for", t.Name, n, len(dst), first)
	}
	width := t.Type.Bytes(1)
	whole := chunks.Get().(*[chunkBytes]byte)
	defer chunks.Put(whole)
	buf := whole[:]
	for off := first * width; len(dst) > 0; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), int64(len(dst))*width)]
		if _, err := t.ReadAt(buf, off); err != nil {
			return err
		}
		n := len(buf) / int(width)
		decode(dst[:n], buf)
		dst = dst[n:]
	}
	return nil
}

// decoders fill dst from as many little-endian elements.
var decoders = map[dtype.Type]func(dst []float32, src []byte){
	dtype.F64: func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	},
	dtype.F32: dtype.F32.Decode, dtype.F16: dtype.F16.Decode, dtype.BF16: dtype.BF16.Decode,
}

// maxDims is the most dimensions a tensor may have.
const maxDims = 64

// SameNumbers compares tensors element by element, some at a time.
func SameNumbers(a, b Tensor) (bool, error) {
	if !a.Shape.Equal(b.Shape) || a.CheckReal() != nil || b.CheckReal() != nil {
		return false, nil // one is quantized and the other is not
	}
	var x, y [1 << 14]float32
	for first, n := int64(0), a.Shape.Elements(); first < n; first += int64(len(x)) {
		k := min(n-first, int64(len(x)))
		if err := errors.Join(a.ReadF32(x[:k], first), b.ReadF32(y[:k], first)); err != nil {
			return false, err
		}
		if !slices.Equal(x[:k], y[:k]) {
			return false, nil
		}
	}
	return true, nil
}

// Size is the storage of a tensor in bytes. It is an error where the shape is impossible
// or 63 bits do not count the bytes.
func Size(t dtype.Type, s shape.Shape) (int64, error) {
	if len(s) > maxDims {
		return 0, fmt.Errorf("it has %d dimensions, at most %d are allowed", len(s), maxDims)
	}
	if err := s.Check(); err != nil {
		return 0, err
	}
	n, width := s.Elements(), t.Bytes(1) // of a block type, more than any element takes
	if width == 0 {
		return 0, fmt.Errorf("it has elements of type %v", t)
	}
	if n > math.MaxInt64/width {
		return 0, fmt.Errorf("%d elements of type %v have more bytes than 63 bits count", n, t)
	}
	if t.ByRows() {
		return s.Rows() * t.Bytes(s.Last()), nil
	}
	return t.Bytes(n), nil
}
