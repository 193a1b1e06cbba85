package parquet

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Compressions of pages.
const codecNone, codecSnappy, codecGzip, codecZstd = 0, 1, 2, 6

var codecNames = map[int64]string{3: "LZO", 4: "Brotli", 5: "LZ4", 7: "LZ4"}

// unpacker decompresses pages.
type unpacker struct {
	gzip *gzip.Reader
	zstd *zstd.Decoder
}

// unpack decompresses a page, which must have exactly size bytes then.
func (u *unpacker) unpack(codec int64, data []byte, size int) []byte {
	var out []byte
	var err error
	switch codec {
	case codecSnappy:
		return unpackSnappy(data, size)
	case codecGzip:
		out, err = u.unpackGzip(data, size)
	case codecZstd:
		out, err = u.unpackZstd(data, size)
	default:
		name := codecNames[codec]
		panic(failf("pages are compressed with %s (codec %d), which is not read; write the file with snappy, zstd or gzip", name, codec))
	}
	if err != nil {
		panic(failf("decompressing a page of %d bytes: %w", len(data), err))
	}
	return out
}

var errSize = errors.New("it does not have the size that its header says")

// readSize reads exactly size bytes.
func readSize(r io.Reader, size int) ([]byte, error) {
	out := make([]byte, size)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, errors.Join(errSize, err)
	}
	if n, _ := r.Read(make([]byte, 1)); n > 0 {
		return nil, errSize
	}
	return out, nil
}

func (u *unpacker) unpackGzip(data []byte, size int) (_ []byte, err error) {
	if u.gzip == nil {
		u.gzip, err = gzip.NewReader(bytes.NewReader(data))
	} else {
		err = u.gzip.Reset(bytes.NewReader(data))
	}
	if err != nil {
		u.gzip = nil
		return nil, err
	}
	return readSize(u.gzip, size)
}

func (u *unpacker) unpackZstd(data []byte, size int) (_ []byte, err error) {
	if u.zstd == nil {
		u.zstd, err = zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	} else {
		err = u.zstd.Reset(bytes.NewReader(data))
	}
	if err != nil {
		u.zstd = nil
		return nil, err
	}
	return readSize(u.zstd, size)
}

// unpackSnappy decompresses a block of Snappy: its length, then texts and copies of what came
// before.
func unpackSnappy(data []byte, size int) []byte {
	n, k := binary.Uvarint(data)
	if k <= 0 || n != uint64(size) {
		panic(failf("a page of %d bytes decompresses to %d, its header says %d", len(data), n, size))
	}
	data = data[k:]
	out := make([]byte, 0, size)
	take := func(n int) []byte {
		if n < 0 || n > len(data) {
			panic(failf("a compressed page ends early"))
		}
		b := data[:n]
		data = data[n:]
		return b
	}
	number := func(bytes int) (v int) {
		for i, b := range take(bytes) {
			v |= int(b) << (8 * i)
		}
		return v
	}
	for len(data) > 0 {
		tag := take(1)[0]
		length, offset := int(tag>>2)+1, 0
		switch tag & 3 {
		case 0:
			if length > 60 {
				length = number(length-60) + 1
			}
			if length > size-len(out) {
				panic(failf("a compressed page is longer than its header says"))
			}
			out = append(out, take(length)...)
			continue
		case 1:
			length, offset = int(tag>>2&7)+4, int(tag>>5)<<8|number(1)
		case 2:
			offset = number(2)
		case 3:
			offset = number(4)
		}
		if offset <= 0 || offset > len(out) || length > size-len(out) {
			panic(failf("a compressed page copies %d bytes from %d before, at byte %d of %d", length, offset, len(out), size))
		}
		for range length { // what is copied may overlap what it becomes
			out = append(out, out[len(out)-offset])
		}
	}
	if len(out) != size {
		panic(failf("a page decompresses to %d bytes, its header says %d", len(out), size))
	}
	return out
}
