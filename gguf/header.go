package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"strconv"

	"spillway/dtype"
	"spillway/quant"
	"spillway/shape"
	"spillway/tensorfile"
)

// Metadata are the values of a file by key. A value is an int64, uint64, float64, bool or
// string, or a slice of one of these.
type Metadata map[string]any

// header is what a file begins with.
type header struct {
	metadata Metadata
	tensors  []tensorInfo
	bytes    int64 // how many they are in the file
}

// tensorInfo is a tensor as its file describes it, its dimensions in the order of PyTorch.
type tensorInfo struct {
	name   string
	kind   dtype.Type
	shape  shape.Shape
	offset int64 // from the start of the file
	bytes  int64
}

// Bounds of a header. A count is also held against the bytes that are left of the file.
const (
	maxName  = 64 // bytes of a tensor's name
	maxDims  = 4
	maxKey   = 1 << 16
	defAlign = 32
)

// reader reads numbers and strings, and never allocates more than what is left of the file
// could fill.
type reader struct {
	from *bufio.Reader
	at   int64
	size int64
	err  error
}

// readHeader reads the header of a file of a given size, and checks it as a whole.
func readHeader(file io.ReaderAt, size int64) (*header, error) {
	r := &reader{from: bufio.NewReaderSize(io.NewSectionReader(file, 0, size), 1<<16), size: size}
	var magic [4]byte
	r.full(magic[:])
	version := r.u32()
	switch {
	case r.err != nil:
		return nil, fmt.Errorf("it has %d bytes, too few for a GGUF file", size)
	case string(magic[:]) != "GGUF":
		return nil, fmt.Errorf("it begins with %q, a GGUF file with \"GGUF\": %s", magic[:], insteadOf(string(magic[:])))
	case version >= 1<<16:
		return nil, fmt.Errorf("its numbers are big-endian, which is not read; take the little-endian file of the model")
	case version != 2 && version != 3:
		return nil, fmt.Errorf("it has version %d, read are 2 and 3", version)
	}
	tensors, keys := r.count("tensors", 24), r.count("metadata", 13)
	if r.err != nil {
		return nil, r.err
	}
	h := &header{metadata: Metadata{}}
	for range keys {
		key := r.text(maxKey)
		if r.err == nil && key == "" {
			r.fail("it has metadata with an empty key")
		}
		if _, twice := h.metadata[key]; twice && r.err == nil {
			r.fail("it has the metadata %q twice", key)
		}
		value := r.value(r.u32())
		if r.err != nil {
			return nil, fmt.Errorf("metadata %q: %w", key, r.err)
		}
		h.metadata[key] = value
	}
	align, err := h.metadata.alignment()
	if err != nil {
		return nil, err
	}
	for range tensors {
		t := r.tensor()
		if r.err != nil {
			return nil, fmt.Errorf("tensor %d, %q: %w", len(h.tensors), t.name, r.err)
		}
		h.tensors = append(h.tensors, t)
	}
	h.bytes = r.at
	return h, h.place(alignUp(r.at, align), align, size)
}

// fetchAgain is what to do with a header that the file does not have room for.
const fetchAgain = "it was cut short or is damaged, fetch it again"

// insteadOf says what a file is that begins otherwise than a GGUF file, and what to do.
func insteadOf(magic string) string {
	if magic == "vers" { // version https://git-lfs.github.com/spec/v1
		return "it may be a pointer of Git LFS instead of the file; run git lfs pull where it was cloned"
	}
	return "it is another kind of file, or a page that was saved instead of it; fetch it again"
}

// place turns offsets in the data into offsets in the file. Tensors follow each other
// without gaps but for alignment.
func (h *header) place(data, align, size int64) error {
	seen := map[string]bool{}
	var next int64
	for i := range h.tensors {
		t := &h.tensors[i]
		switch {
		case seen[t.name]:
			return fmt.Errorf("tensor %q is there twice", t.name)
		case t.offset != next:
			return fmt.Errorf("tensor %q is at %d of the data, after the one before it is %d", t.name, t.offset, next)
		case t.bytes > math.MaxInt64-align-next || data > size || t.bytes > size-data-next:
			return fmt.Errorf("tensor %q has %d bytes at %d, the file only %d: it was cut short, fetch it again", t.name, t.bytes, data+next, size)
		}
		seen[t.name] = true
		t.offset = data + next
		next = alignUp(next+t.bytes, align)
	}
	return nil
}

func (m Metadata) alignment() (int64, error) {
	v, ok := m["general.alignment"]
	if !ok {
		return defAlign, nil
	}
	n, ok := v.(uint64)
	if !ok || n == 0 || n&(n-1) != 0 || n > 1<<20 {
		return 0, fmt.Errorf("general.alignment is %v, it must be a power of two", v)
	}
	return int64(n), nil
}

func alignUp(n, to int64) int64 { return (n + to - 1) / to * to }

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) full(b []byte) {
	if r.err != nil {
		return
	}
	n, err := io.ReadFull(r.from, b)
	r.at += int64(n)
	if err != nil {
		r.fail("the file ends at %d: %s", r.at, fetchAgain)
	}
}

func (r *reader) u64() uint64 {
	var b [8]byte
	r.full(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

func (r *reader) u32() uint32 {
	var b [4]byte
	r.full(b[:])
	return binary.LittleEndian.Uint32(b[:])
}

// count reads a number of things that take at least so many bytes each.
func (r *reader) count(what string, least int64) int {
	n := r.u64()
	if r.err == nil && n > uint64((r.size-r.at)/least) {
		r.fail("%d %s are said to be in the %d bytes that are left of the file: %s", n, what, r.size-r.at, fetchAgain)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) text(most int64) string {
	n := r.count("bytes of text", 1)
	if r.err == nil && int64(n) > most {
		r.fail("a text of %d bytes, at most %d are read", n, most)
	}
	if r.err != nil {
		return ""
	}
	b := make([]byte, n)
	r.full(b)
	return string(b)
}

// Types of metadata, by number: their sizes in bytes; texts and arrays have none.
const (
	typeString = 8
	typeArray  = 9
)

var typeBytes = map[uint32]int64{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, typeString: 8, 10: 8, 11: 8, 12: 8}

// value reads a value of a type.
func (r *reader) value(kind uint32) any {
	if kind != typeArray {
		return r.scalar(kind)
	}
	kind = r.u32()
	size, known := typeBytes[kind]
	if !known {
		r.fail("an array of type %d, which is not known", kind)
		return nil
	}
	n := r.count("elements", size)
	switch kind {
	case typeString:
		return list(r, n, kind, func(v any) string { return v.(string) })
	case 6, 12:
		return list(r, n, kind, func(v any) float64 { return v.(float64) })
	case 7:
		return list(r, n, kind, func(v any) bool { return v.(bool) })
	}
	return list(r, n, kind, toInt)
}

func toInt(v any) int64 {
	if u, ok := v.(uint64); ok {
		return int64(u)
	}
	n, _ := v.(int64)
	return n
}

// list reads the elements of an array.
func list[T any](r *reader, n int, kind uint32, as func(any) T) []T {
	out := make([]T, 0, min(n, 1<<16))
	for range n {
		v := r.scalar(kind)
		if r.err != nil {
			return nil
		}
		out = append(out, as(v))
	}
	return out
}

func (r *reader) scalar(kind uint32) any {
	if kind == typeString {
		return r.text(r.size)
	}
	size, known := typeBytes[kind]
	if !known {
		r.fail("a value of type %d, which is not known", kind)
		return nil
	}
	var b [8]byte
	r.full(b[:size])
	u := binary.LittleEndian.Uint64(b[:])
	switch kind {
	case 0, 2, 4, 10:
		return u
	case 1:
		return int64(int8(u))
	case 3:
		return int64(int16(u))
	case 5:
		return int64(int32(u))
	case 6:
		return float64(math.Float32frombits(uint32(u)))
	case 7:
		if u > 1 {
			r.fail("a bool of value %d", u)
		}
		return u == 1
	case 11:
		return int64(u)
	}
	return math.Float64frombits(u)
}

// tensor reads the description of a tensor.
func (r *reader) tensor() (t tensorInfo) {
	t.name = r.text(maxName - 1)
	dims := r.u32()
	if r.err == nil && dims > maxDims {
		r.fail("%d dimensions, at most %d are read", dims, maxDims)
	}
	if r.err != nil {
		return t
	}
	t.shape = make(shape.Shape, dims)
	for i := range dims { // the file counts from the fastest one
		t.shape[dims-1-i] = int64(r.u64())
	}
	number := r.u32()
	t.offset = int64(r.u64())
	if r.err != nil {
		return t
	}
	known := false
	if t.kind, known = kinds[number]; !known {
		name := unknownKinds[number]
		if name == "" {
			name = fmt.Sprintf("number %d", number)
		}
		r.fail("its type, %s, is not read; convert the model to Q8_0, Q6_K or Q4_K_M", name)
		return t
	}
	if dims == 0 {
		t.shape = shape.Shape{1}
	}
	if c := quant.Of(t.kind); c != nil && t.shape.Last()%int64(c.Block) != 0 {
		r.fail("rows of %d elements are not whole blocks of %d", t.shape.Last(), c.Block)
		return t
	}
	bytes, err := tensorfile.Size(t.kind, t.shape)
	if err != nil {
		r.fail("%w", err)
	}
	t.bytes = bytes
	return t
}

// splitPattern is how the parts of a model are named.
var splitPattern = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// splitName takes the name of a part apart.
func splitName(name string) (stem string, index, count int, ok bool) {
	m := splitPattern.FindStringSubmatch(name)
	if m == nil {
		return "", 0, 0, false
	}
	index, _ = strconv.Atoi(m[2])
	count, _ = strconv.Atoi(m[3])
	return m[1], index, count, true
}

// splitPaths lists the files of a model, of which the first is given.
func splitPaths(path string, m Metadata) ([]string, error) {
	count := m.intOr("split.count", 1)
	if count <= 1 {
		return []string{path}, nil
	}
	stem, index, parts, ok := splitName(filepath.Base(path))
	switch {
	case !ok || int64(parts) != count:
		return nil, fmt.Errorf("it is one of %d parts, and its name is not NAME-00001-of-%05d.gguf; give the parts the names they had", count, count)
	case index != 1 || m.intOr("split.no", 0) != 0:
		return nil, fmt.Errorf("it is part %d of %d; name the first, %s-00001-of-%05d.gguf", index, parts, stem, parts)
	}
	list := make([]string, parts)
	for i := range list {
		list[i] = filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%05d-of-%05d.gguf", stem, i+1, parts))
	}
	return list, nil
}

func (m Metadata) intOr(key string, otherwise int64) int64 {
	switch v := m[key].(type) {
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v)
		}
	case int64:
		return v
	}
	return otherwise
}

func (m Metadata) floatOr(key string, otherwise float64) float64 {
	switch v := m[key].(type) {
	case float64:
		return v
	case nil:
		return otherwise
	}
	return float64(m.intOr(key, 0))
}

func (m Metadata) textOr(key, otherwise string) string {
	if v, ok := m[key].(string); ok {
		return v
	}
	return otherwise
}
