package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"unsafe"

	"spillway/internal/vfs"
)

const manifestName = "manifest"

// magic begins a manifest; the digit is its version. 2: regions are journaled.
const magic = "spilldk2"

const (
	maxHead    = 256 << 20 // bytes of the text at the head of a manifest, at most
	sumsAtOnce = 1 << 10   // checksums that are read or written together
)

// manifest is a committed state: for each allocation its regions, and for each journaled
// page where it is and its checksum. As a file it is the magic, the length of a JSON
// head, the head, the tables of the allocations, and a checksum of all that.
type manifest struct {
	Iteration int64              `json:"iteration"`
	PageBytes int64              `json:"page_bytes"`
	Memories  []*committedMemory `json:"memories"`
}

// committedMemory is one allocation of a committed state.
type committedMemory struct {
	Number  int      `json:"number"`
	Bytes   int64    `json:"bytes"`
	Regions []Region `json:"regions"`
	// Files in place, by name without folder: a model may be moved, not changed.
	Files map[string]int64 `json:"files,omitempty"`

	versions versions
}

// memory finds an allocation; nil for none.
func (m *manifest) memory(number int) *committedMemory {
	if m == nil {
		return nil
	}
	for _, c := range m.Memories {
		if c.Number == number {
			return c
		}
	}
	return nil
}

// commitOf describes an allocation as it is now.
func commitOf(m *memory) *committedMemory {
	c := &committedMemory{Number: m.number, Bytes: m.size, Files: map[string]int64{}}
	for _, placed := range m.layout.regions {
		r := placed.Region
		if r.Kind == InPlace {
			r.File = filepath.Base(r.File)
			c.Files[r.File] = m.files[placed.File].size
		}
		c.Regions = append(c.Regions, r)
	}
	n := m.layout.journaled
	c.versions = versions{m.pages.now.where[:n], m.pages.now.sums[:n]}
	return c
}

// sameAs says how an allocation differs from the committed one.
func (c *committedMemory) sameAs(m *memory) error {
	now := commitOf(m)
	if c.Bytes != now.Bytes {
		return fmt.Errorf("it had %d bytes, now there are %d", c.Bytes, now.Bytes)
	}
	if len(c.Regions) != len(now.Regions) {
		return fmt.Errorf("it had %d regions, now there are %d", len(c.Regions), len(now.Regions))
	}
	for i, r := range c.Regions {
		if r != now.Regions[i] {
			return fmt.Errorf("region %d was %+v, now it is %+v", i, r, now.Regions[i])
		}
	}
	for name, size := range c.Files {
		if now.Files[name] != size {
			return fmt.Errorf("%s had %d bytes, now it has %d", name, size, now.Files[name])
		}
	}
	return nil
}

// write puts the manifest to w, in small pieces.
func (m *manifest) write(w io.Writer) error {
	head, err := json.Marshal(m)
	if err != nil {
		return err
	}
	sum := crc32.New(castagnoli)
	buffered := bufio.NewWriterSize(io.MultiWriter(w, sum), 256<<10)
	buffered.WriteString(magic)
	binary.Write(buffered, binary.LittleEndian, uint32(len(head)))
	buffered.Write(head)
	for _, c := range m.Memories {
		buffered.Write(c.versions.whereBytes())
		for sums := range slices.Chunk(c.versions.sums, sumsAtOnce) {
			binary.Write(buffered, binary.LittleEndian, sums)
		}
	}
	if err := buffered.Flush(); err != nil { // also what the writes above met
		return err
	}
	return binary.Write(w, binary.LittleEndian, sum.Sum32())
}

// whereBytes views the generations as bytes, which they are.
func (v versions) whereBytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v.where))), len(v.where))
}

// readManifest reads a manifest and holds every length against the size of the file.
// Without one the error is ErrNoCommit.
func readManifest(disk vfs.FS, path string) (*manifest, error) {
	f, err := disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", filepath.Dir(path), ErrNoCommit)
	}
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(f)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return m, errors.Join(err, f.Close())
}

func parseManifest(f vfs.File) (*manifest, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	r := &summedReader{r: bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 256<<10), sum: crc32.New(castagnoli), left: size}
	head, err := r.head()
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	strict := json.NewDecoder(bytes.NewReader(head))
	strict.DisallowUnknownFields()
	if err := strict.Decode(m); err != nil {
		return nil, fmt.Errorf("its head: %w", err)
	}
	if m.PageBytes != pageBytes || m.Iteration < 0 {
		return nil, fmt.Errorf("iteration %d with pages of %d bytes, this program has pages of %d", m.Iteration, m.PageBytes, pageBytes)
	}
	for _, c := range m.Memories {
		if err := r.versions(c); err != nil {
			return nil, fmt.Errorf("allocation %d: %w", c.Number, err)
		}
	}
	return m, r.end()
}

// summedReader reads a file of known length and sums what it reads.
type summedReader struct {
	r    io.Reader
	sum  hash.Hash32
	left int64 // bytes of the file not yet read
}

// Read fills all of p.
func (r *summedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > r.left {
		return 0, fmt.Errorf("%d bytes are left of it, %d are needed", r.left, len(p))
	}
	if n, err := io.ReadFull(r.r, p); err != nil {
		return n, err
	}
	r.left -= int64(len(p))
	return r.sum.Write(p)
}

func (r *summedReader) head() ([]byte, error) {
	var start [len(magic) + 4]byte
	if _, err := r.Read(start[:]); err != nil {
		return nil, err
	}
	if string(start[:len(magic)]) != magic {
		return nil, fmt.Errorf("it begins with %q, a manifest of this version with %q: begin anew in another folder, or restore a checkpoint", start[:len(magic)], magic)
	}
	n := int64(binary.LittleEndian.Uint32(start[len(magic):]))
	if n > min(r.left, maxHead) {
		return nil, fmt.Errorf("a head of %d bytes in a file with %d left", n, r.left)
	}
	head := make([]byte, n)
	_, err := r.Read(head)
	return head, err
}

// versions reads the tables of an allocation.
func (r *summedReader) versions(c *committedMemory) error {
	if c == nil || c.Number < 0 || c.Bytes < 0 {
		return fmt.Errorf("it cannot be: %+v", c)
	}
	l, err := newLayout(c.Bytes, c.Regions)
	if err != nil {
		return err
	}
	if l.journaled > r.left/5 {
		return fmt.Errorf("%d pages in a file with %d bytes left", l.journaled, r.left)
	}
	c.versions = newVersions(l.journaled)
	if _, err := r.Read(c.versions.whereBytes()); err != nil {
		return err
	}
	if slices.Max(append(c.versions.whereBytes(), 0)) > byte(second) {
		return fmt.Errorf("a page is in a generation that does not exist")
	}
	for sums := range slices.Chunk(c.versions.sums, sumsAtOnce) {
		if err := binary.Read(r, binary.LittleEndian, sums); err != nil {
			return err
		}
	}
	return nil
}

// end compares the checksum at the end of the file.
func (r *summedReader) end() error {
	want, got := r.sum.Sum32(), uint32(0)
	if err := binary.Read(r, binary.LittleEndian, &got); err != nil {
		return err
	}
	if got != want || r.left != 0 {
		return fmt.Errorf("its checksum is %08x, it says %08x, with %d bytes after it", want, got, r.left)
	}
	return nil
}
