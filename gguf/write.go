package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"spillway/dtype"
	"spillway/internal/vfs"
	"spillway/quant"
	"spillway/tensorfile"
)

// Write writes a file, its tensors as a stream in their order. Metadata may have the types
// that reading gives; general.architecture comes first, the others by their keys. The file appears
// when it is whole.
func Write(disk vfs.FS, path string, m Metadata, tensors []tensorfile.Output) error {
	head, offsets, err := encodeHeader(m, tensors)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return vfs.Replace(disk, path, func(w io.Writer) error {
		if _, err := w.Write(head); err != nil {
			return err
		}
		at := int64(0)
		for i, t := range tensors {
			if _, err := w.Write(make([]byte, offsets[i]-at)); err != nil {
				return err
			}
			n, err := t.Bytes()
			if err != nil {
				return err
			}
			if err := tensorfile.WriteExactly(w, t.Name, n, t.Write); err != nil {
				return err
			}
			at = offsets[i] + n
		}
		_, err := w.Write(make([]byte, alignUp(at, defAlign)-at))
		return err
	})
}

// encodeHeader is everything before the data, and where in the data each tensor begins.
func encodeHeader(m Metadata, tensors []tensorfile.Output) (head []byte, offsets []int64, err error) {
	var b bytes.Buffer
	b.WriteString("GGUF")
	put := func(v any) { binary.Write(&b, binary.LittleEndian, v) } // into memory: it cannot fail
	text := func(s string) { put(uint64(len(s))); b.WriteString(s) }
	put(uint32(3))
	put(uint64(len(tensors)))
	put(uint64(len(m)))
	keys := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(keys, func(a, c string) int {
		if a == "general.architecture" {
			return -1
		} else if c == "general.architecture" {
			return 1
		}
		return 0
	})
	for _, key := range keys {
		text(key)
		if err := putValue(put, text, m[key]); err != nil {
			return nil, nil, fmt.Errorf("metadata %s: %w", key, err)
		}
	}
	next := int64(0)
	for _, t := range tensors {
		number, ok := numberOf(t.Type)
		if !ok || len(t.Name) >= maxName || len(t.Shape) > maxDims {
			return nil, nil, fmt.Errorf("tensor %q of type %v and shape %v cannot be in a GGUF file", t.Name, t.Type, t.Shape)
		}
		if c := quant.Of(t.Type); c != nil && t.Shape.Last()%int64(c.Block) != 0 {
			return nil, nil, fmt.Errorf("tensor %q has rows of %d, which are not whole blocks of %d", t.Name, t.Shape.Last(), c.Block)
		}
		text(t.Name)
		put(uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			put(uint64(d))
		}
		put(number)
		put(uint64(next))
		offsets = append(offsets, next)
		n, err := t.Bytes()
		if err != nil {
			return nil, nil, err
		}
		next = alignUp(next+n, defAlign)
	}
	b.Write(make([]byte, alignUp(int64(b.Len()), defAlign)-int64(b.Len())))
	return b.Bytes(), offsets, nil
}

// putValue writes a value behind the number of its type.
func putValue(put func(any), text func(string), v any) error {
	array := func(kind uint32, n int) { put(uint32(typeArray)); put(kind); put(uint64(n)) }
	switch v := v.(type) {
	case string:
		put(uint32(typeString))
		text(v)
	case bool:
		put(uint32(7))
		put(v)
	case float64:
		put(uint32(6))
		put(float32(v))
	case int64:
		if v < 0 || v > math.MaxUint32 {
			return fmt.Errorf("the number %d does not fit", v)
		}
		put(uint32(4))
		put(uint32(v))
	case []string:
		array(typeString, len(v))
		for _, s := range v {
			text(s)
		}
	case []float64:
		array(6, len(v))
		for _, f := range v {
			put(float32(f))
		}
	case []int64:
		array(5, len(v))
		for _, n := range v {
			put(int32(n))
		}
	default:
		return fmt.Errorf("a %T", v)
	}
	return nil
}

// numberOf is the number of an element type in files.
func numberOf(t dtype.Type) (uint32, bool) {
	for number, kind := range kinds {
		if kind == t {
			return number, true
		}
	}
	return 0, false
}
