package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"spillway/dtype"
)

// ReadHeader reads and checks the header of a file of the given size in bytes.
func ReadHeader(r io.ReaderAt, fileBytes int64) (*Header, error) {
	raw, err := headerBytes(r, fileBytes)
	if err != nil {
		return nil, err
	}
	h := &Header{start: prefix + int64(len(raw))}
	if err := scan(raw, "header", h.parse); err != nil {
		return nil, err
	}
	return h, h.checkCoverage(fileBytes)
}

// headerBytes reads the JSON text, once the real size of the file has shown that the text
// fits into it.
func headerBytes(r io.ReaderAt, fileBytes int64) ([]byte, error) {
	var first [prefix]byte
	if fileBytes < prefix {
		return nil, fmt.Errorf("the file has %d bytes, fewer than the %d every safetensors file begins with", fileBytes, prefix)
	}
	if _, err := r.ReadAt(first[:], 0); err != nil {
		return nil, fmt.Errorf("reading the header length: %w", err)
	}
	n := binary.LittleEndian.Uint64(first[:])
	if n > MaxHeader {
		return nil, fmt.Errorf("the header would have %d bytes, at most %d are allowed: %s", n, MaxHeader, guess(first))
	}
	if int64(n) > fileBytes-prefix {
		return nil, fmt.Errorf("the header would have %d bytes, the file has %d after its length: it was cut short, fetch it again", n, fileBytes-prefix)
	}
	raw := make([]byte, n)
	if _, err := r.ReadAt(raw, prefix); err != nil && !(err == io.EOF && n == 0) {
		return nil, fmt.Errorf("reading the header of %d bytes: %w", n, err)
	}
	if n == 0 || raw[0] != '{' {
		return nil, fmt.Errorf("the header of %d bytes does not begin with {: this is not a safetensors file", n)
	}
	return raw, nil
}

// guess names what a file is that is clearly not safetensors.
func guess(first [prefix]byte) string {
	switch {
	case string(first[:]) == "version ":
		return "this looks like a Git LFS pointer, fetch the file it stands for"
	case string(first[:2]) == "PK":
		return "this looks like a zip archive, perhaps a pickled checkpoint, which is never loaded: convert it to safetensors"
	case string(first[:4]) == "GGUF":
		return "this looks like a GGUF file, convert it to safetensors"
	}
	return "this is not a safetensors file"
}

func (h *Header) parse(s *scanner) {
	s.object(func(name string) {
		if name == metadataKey {
			h.Metadata = map[string]string{}
			s.object(func(key string) { h.Metadata[key] = s.str() })
			return
		}
		if len(h.Tensors) == MaxTensors {
			panic(s.fail("more than %d tensors", MaxTensors))
		}
		h.Tensors = append(h.Tensors, parseTensor(s, name))
	})
}

// parseTensor reads {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}. Its Offset
// is, until checkCoverage, counted from the end of the header.
func parseTensor(s *scanner, name string) Info {
	t := Info{Name: name}
	var offsets []int64
	s.object(func(key string) {
		switch key {
		case "dtype":
			text := s.str()
			var err error
			if t.Type, err = dtype.Parse(text); err != nil || t.Type.Safetensors() != text {
				panic(s.fail("tensor %q: unknown element type %q", name, text))
			}
		case "shape":
			t.Shape = s.integers(maxDims)
		case "data_offsets":
			offsets = s.integers(2)
		default:
			panic(s.fail("tensor %q: unknown key %q", name, key))
		}
	})
	if t.Type == dtype.Invalid || t.Shape == nil || len(offsets) != 2 {
		panic(s.fail("tensor %q: dtype, shape and two data_offsets are all needed", name))
	}
	n, err := size(t.Type, t.Shape)
	if err != nil {
		panic(s.fail("tensor %q: %v", name, err))
	}
	begin, end := offsets[0], offsets[1]
	if begin > end || end-begin != n {
		panic(s.fail("tensor %q: shape %v of %v needs %d bytes, data_offsets are [%d, %d]", name, t.Shape, t.Type, n, begin, end))
	}
	t.Offset, t.Bytes = begin, n
	return t
}

// checkCoverage sorts the tensors into file order, makes sure that they cover the
// data without overlaps, gaps or trailing bytes, and makes their offsets absolute.
func (h *Header) checkCoverage(fileBytes int64) error {
	slices.SortStableFunc(h.Tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes))
	})
	data := fileBytes - h.start
	at := int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if t.Offset != at {
			return fmt.Errorf("tensor %q begins at byte %d of the data, the one before it ends at %d", t.Name, t.Offset, at)
		}
		if t.Bytes > data-at {
			return fmt.Errorf("tensor %q ends at byte %d of the data, the file has %d: it was cut short, fetch it again", t.Name, at+t.Bytes, data)
		}
		at += t.Bytes
		t.Offset += h.start
	}
	if at != data {
		return fmt.Errorf("the tensors end at byte %d of the data, the file has %d", at, data)
	}
	return nil
}
