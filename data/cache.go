package data

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"

	"spillway/internal/vfs"
)

// Cache is a temporary file, of which a kill leaves nothing, with the tokens of conversations, so that they are rendered and
// tokenized once, not in every epoch. What does not fit is made again each time.
type Cache struct {
	file *os.File
	gone func() error // after closing
	most int64        // bytes
	used atomic.Int64
	full atomic.Bool // or it cannot be written
}

// NewCache makes a cache of at most so many bytes in a folder, "" for that of temporary
// files. The caller closes it.
func NewCache(dir string, most int64) (*Cache, error) {
	f, err := os.CreateTemp(dir, "spillway-tokens-*")
	if err != nil {
		return nil, err
	}
	gone, err := vfs.Unname(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Cache{file: f, gone: gone, most: most}, nil
}

// Close gives the space back.
func (c *Cache) Close() error { return errors.Join(c.file.Close(), c.gone()) }

// In the cache a document is the number of its tokens, the number of its ranges in the loss
// plus 1, 0 for nil, and these: 4 bytes each.
const cacheHead = 2

// store writes a document and returns its place plus 1, or 0 if there is no room.
func (c *Cache) store(d Document) int64 {
	values := make([]uint32, 0, cacheHead+len(d.Tokens)+2*len(d.InLoss))
	ranges := 0
	if d.InLoss != nil {
		ranges = len(d.InLoss) + 1
	}
	values = append(values, uint32(len(d.Tokens)), uint32(ranges))
	for _, t := range d.Tokens {
		values = append(values, uint32(t))
	}
	for _, r := range d.InLoss {
		values = append(values, uint32(r.Start), uint32(r.End))
	}
	size := int64(binary.Size(values))
	if c.full.Load() || c.used.Load()+size > c.most {
		return 0
	}
	at := c.used.Add(size) - size
	raw, err := binary.Append(make([]byte, 0, size), binary.LittleEndian, values)
	if err == nil {
		_, err = c.file.WriteAt(raw, at)
	}
	if err != nil {
		c.full.Store(true) // the disk is full; the documents are made again
		return 0
	}
	return at + 1
}

// load reads the document at a place that store returned.
func (c *Cache) load(place int64) (d Document, err error) {
	at := place - 1
	read := func(n int) ([]uint32, error) {
		raw := make([]byte, 4*n)
		if _, err := c.file.ReadAt(raw, at); err != nil {
			return nil, err
		}
		at += int64(len(raw))
		values := make([]uint32, n)
		_, err := binary.Decode(raw, binary.LittleEndian, values)
		return values, err
	}
	head, err := read(cacheHead)
	if err != nil {
		return d, err
	}
	tokens, ranges := int(head[0]), int(head[1])
	values, err := read(tokens + 2*max(ranges-1, 0))
	if err != nil {
		return d, err
	}
	d.Tokens = make([]int32, tokens)
	for i, v := range values[:tokens] {
		d.Tokens[i] = int32(v)
	}
	if ranges > 0 {
		d.InLoss = make([]Range, ranges-1)
		for i := range d.InLoss {
			d.InLoss[i] = Range{int(values[tokens+2*i]), int(values[tokens+2*i+1])}
		}
	}
	return d, nil
}
