package eventlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// Reader reads the records of a log one after the other, also of one that is still written.
type Reader struct {
	file   io.ReaderAt
	closer io.Closer
	path   string
	at     int64 // of the next record
	buffer []byte
	headed bool // the header was there, and is sound
}

// OpenReader opens a log at its first record. The caller closes it.
func OpenReader(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the event log: %w", err)
	}
	r, err := newReader(f, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.closer = f
	return r, nil
}

func newReader(f io.ReaderAt, path string) (*Reader, error) {
	r := &Reader{file: f, path: path, at: int64(headerSize)}
	return r, r.readHeader()
}

// readHeader looks at what the file begins with. One that has no more than the beginning of a header is
// a log without records: its writer was killed before the first, or is about to write it.
func (r *Reader) readHeader() error {
	head := make([]byte, headerSize)
	n, err := r.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the event log %s: %w", r.path, err)
	}
	if n < headerSize && string(head[:n]) == string(header()[:n]) {
		return nil
	}
	err = checkHeader(r.path, head[:n])
	r.headed = err == nil
	return err
}

// Close closes the file.
func (r *Reader) Close() error { return r.closer.Close() }

// At is where the next record begins, in bytes from the start of the file.
func (r *Reader) At() int64 { return r.at }

// GoTo goes to a record, by what At was before it.
func (r *Reader) GoTo(at int64) { r.at = max(at, int64(headerSize)) }

// Next gives the next record; the payload is valid until the next call. io.EOF means that
// there is no whole record yet: after more was written, Next goes on. A DamagedError is about
// a record that is there and wrong.
func (r *Reader) Next() (Kind, []byte, error) {
	kind, length, err := r.front()
	if err != nil {
		return 0, nil, err
	}
	size := length + frameSize
	if int64(cap(r.buffer)) < size {
		// Memory grows with what is there, not with what a damaged length says.
		if err := r.exists(r.at + size); err != nil {
			return 0, nil, err
		}
		r.buffer = make([]byte, size)
	}
	b := r.buffer[:size]
	if err := r.read(b, r.at); err != nil {
		return 0, nil, err
	}
	if !sound(b) {
		return 0, nil, &DamagedError{r.path, r.at}
	}
	r.at += size
	return kind, b[frontSize : frontSize+length], nil
}

// Skip passes over the next record and gives its kind, without reading the payload.
func (r *Reader) Skip() (Kind, error) {
	kind, length, err := r.front()
	if err == nil {
		err = r.exists(r.at + length + frameSize)
	}
	if err == nil {
		r.at += length + frameSize
	}
	return kind, err
}

// front reads what a record begins with.
func (r *Reader) front() (Kind, int64, error) {
	if !r.headed {
		if err := r.readHeader(); err != nil {
			return 0, 0, err
		}
		if !r.headed {
			return 0, 0, io.EOF
		}
	}
	var b [frontSize]byte
	if err := r.read(b[:], r.at); err != nil {
		return 0, 0, err
	}
	length := int64(binary.LittleEndian.Uint32(b[:]))
	if length > maxPayload || b[5] != 0 || b[6] != 0 || b[7] != 0 {
		return 0, 0, &DamagedError{r.path, r.at}
	}
	return Kind(b[4]), length, nil
}

// exists says, with io.EOF, that the file is shorter.
func (r *Reader) exists(end int64) error {
	var last [1]byte
	return r.read(last[:], end-1)
}

func (r *Reader) read(b []byte, at int64) error {
	n, err := r.file.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("reading the event log %s: %w", r.path, err)
}

// sound says whether the checksum and the second length of a whole record hold.
func sound(b []byte) bool {
	body, crc := b[:len(b)-backSize], binary.LittleEndian.Uint32(b[len(b)-backSize:])
	return crc32.Checksum(body, table) == crc && [4]byte(b[len(b)-4:]) == [4]byte(b[:4])
}

// tail gives the last records of a file, newest first, as far as a few kilobytes have them,
// until take returns false or a part of a record comes.
func (r *Reader) tail(size int64, take func(Kind, []byte) bool) {
	const near = 16 << 10
	from := max(size-near, int64(headerSize))
	tail := make([]byte, max(size-from, 0))
	if r.read(tail, from) != nil {
		return
	}
	for len(tail) >= frameSize {
		length := int64(binary.LittleEndian.Uint32(tail[len(tail)-4:]))
		at := int64(len(tail)) - length - frameSize
		if at < 0 { // it begins before what was read
			return
		}
		if record := tail[at:]; !sound(record) || !take(Kind(record[4]), record[frontSize:frontSize+length]) {
			return
		}
		tail = tail[:at]
	}
}
