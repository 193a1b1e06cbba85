package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"spillway/dtype"
	"spillway/internal/vfs"
)

// File is an open safetensors file. It is safe for concurrent reads.
type File struct {
	header *Header
	path   string
	file   vfs.File
	byName map[string]int // index in header.Tensors
}

// Open opens a file and reads its header. The caller closes it.
func Open(path string) (*File, error) { return OpenOn(vfs.OS, path) }

// OpenOn is Open on a given disk.
func OpenOn(disk vfs.FS, path string) (*File, error) {
	f, err := disk.Open(path)
	if err != nil {
		return nil, err
	}
	h, err := headerOf(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	byName := make(map[string]int, len(h.Tensors))
	for i, t := range h.Tensors {
		byName[t.Name] = i
	}
	return &File{header: h, path: path, file: f, byName: byName}, nil
}

func headerOf(f vfs.File) (*Header, error) {
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	return ReadHeader(f, n)
}

// Path is the name the file was opened by.
func (f *File) Path() string { return f.path }

// Metadata is the header's free text, not to be changed.
func (f *File) Metadata() map[string]string { return f.header.Metadata }

// Tensors lists the tensors in file order.
func (f *File) Tensors() []Tensor {
	all := make([]Tensor, len(f.header.Tensors))
	for i, t := range f.header.Tensors {
		all[i] = Tensor{t, f}
	}
	return all
}

// Tensor finds a tensor by name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return Tensor{f.header.Tensors[i], f}, true
}

// Close ends all use of the file's tensors.
func (f *File) Close() error { return f.file.Close() }

// Tensor is a window on an open file: it holds no data of its own.
type Tensor struct {
	Info
	file *File
}

// Bare is a tensor in a file without a header; who says where it lies has held that
// against the file's size. The file stays the caller's to close.
func Bare(file vfs.File, path string, info Info) Tensor {
	return Tensor{info, &File{path: path, file: file}}
}

// Path is the file the tensor is in, for those who read it by other means: its bytes
// are the Bytes from Offset.
func (t Tensor) Path() string { return t.file.path }

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
	n, err := t.file.file.ReadAt(p, t.Offset+off)
	if n < len(p) {
		return n, fmt.Errorf("tensor %q: read %d of %d bytes at %d of %s: %w", t.Name, n, len(p), t.Offset+off, t.file.path, err)
	}
	if short {
		return n, io.EOF
	}
	return n, nil
}

// chunkBytes is how much ReadF32 reads at a time; a multiple of every width.
const chunkBytes = 64 << 10

// chunks are kept between calls: a model is read in very many.
var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// ReadF32 reads len(dst) elements from the element first on, converted to float32.
// Types that are not f64, f32, bf16 or f16 are refused.
func (t Tensor) ReadF32(dst []float32, first int64) error {
	decode := decoders[t.Type]
	if decode == nil {
		return fmt.Errorf("tensor %q has elements of type %v, which do not convert to f32", t.Name, t.Type)
	}
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
