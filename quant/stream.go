package quant

import (
	"bytes"
	"fmt"
	"io"

	"spillway/dtype"
)

// ReadFunc gives the elements of a tensor from the first-th on. It is called from
// several goroutines.
type ReadFunc func(first int64, dst []float32) error

// Storage reads as the storage of a weight, a matrix of rows and columns, in a block type.
// Numbers are pulled and encoded as it is read, so that a tensor may be larger than
// memory; what is held is at most a scale for every block.
func Storage(t dtype.Type, rows, cols int64, from ReadFunc) (io.Reader, error) {
	c := Of(t)
	switch {
	case c == nil || c.State != nil:
		return nil, fmt.Errorf("%v is not a type weights are quantized to", t)
	case c.Stream != nil:
		return c.Stream(rows, cols, from), nil
	}
	return c.stream(rows, cols, from), nil
}

// stream encodes whole blocks or rows at a time, whose storage follows each other.
func (c *Codec) stream(rows, cols int64, from ReadFunc) io.Reader {
	unit := int64(c.Block)
	if unit == 0 {
		unit = max(cols, 1)
	}
	n, step := rows*cols, max(1, partElements/unit)*unit
	size := c.Bytes
	if c.Block == 0 {
		size = func(count int64) int64 { return count / cols * c.Bytes(cols) }
	}
	return encodeParts(n, step, from, size, func(first int64, b *buffer) error {
		if bad := firstNonFinite(b.numbers); bad >= 0 {
			return fmt.Errorf("element %d is %v, which %v cannot hold", first+int64(bad), b.numbers[bad], c.Type)
		}
		return c.Encode(b.bytes, b.numbers, int(cols))
	})
}

// tailReader reads as the storage behind the codes, once all are made.
type tailReader struct {
	tail func() ([]byte, error)
	all  *bytes.Reader
}

func (r *tailReader) Read(p []byte) (int, error) {
	if r.all == nil {
		tail, err := r.tail()
		if err != nil {
			return 0, err
		}
		r.all = bytes.NewReader(tail)
	}
	return r.all.Read(p)
}

// partElements is how many elements are one part of a stream: whole blocks of every size
// there is.
const partElements = 64 << 10
