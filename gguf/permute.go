package gguf

import (
	"fmt"
	"io"

	"spillway/tensorfile"
)

// unpermuted is a tensor with its rows in the order of transformers. The file has the rows
// of a head as interleaved rotary pairs: first and second half of the head alternate. Blocks
// lie along rows, so rows move whole, packed or not.
func unpermuted(t tensorfile.Tensor, heads int64) (tensorfile.Tensor, error) {
	rows := t.Shape[0]
	if len(t.Shape) > 2 || rows%(2*heads) != 0 {
		return t, fmt.Errorf("tensor %q has the shape %v, which is not %d heads of an even number of rows", t.Name, t.Shape, heads)
	}
	bytes := t.Bytes / rows
	t.Data, t.Offset, t.InPlace = &rowOrder{data: t.Data, offset: t.Offset, rowBytes: bytes, half: rows / heads / 2}, 0, false
	return t, nil
}

// rowOrder reads rows in another order than they are stored in.
type rowOrder struct {
	data     io.ReaderAt
	offset   int64
	rowBytes int64
	half     int64 // rows of half a head
}

// stored is where row r of the tensor lies in the file.
func (o *rowOrder) stored(r int64) int64 {
	head, within := r/(2*o.half), r%(2*o.half)
	return head*2*o.half + 2*(within%o.half) + within/o.half
}

// ReadAt reads bytes of the tensor, row by row.
func (o *rowOrder) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		row, skip := (off+int64(n))/o.rowBytes, (off+int64(n))%o.rowBytes
		part := p[n:min(int64(len(p)), int64(n)+o.rowBytes-skip)]
		k, err := o.data.ReadAt(part, o.offset+o.stored(row)*o.rowBytes+skip)
		if n += k; k < len(part) {
			return n, err
		}
	}
	return n, nil
}
