package quant

import (
	"bytes"
	"fmt"
	"io"

	"spillway/dtype"
)

// Numbers gives the elements of a tensor from the first-th on. It is called from
// several goroutines.
type ReadFunc func(first int64, dst []float32) error

// Storage reads as the storage of a weight, a matrix of rows and columns in a 4-bit or a
// row type. Numbers are pulled and coded as it is read, so that a tensor may be larger
// than memory; what is held is a scale for every 64 of them, or for every row.
func Storage(t dtype.Type, rows, cols int64, from ReadFunc) (io.Reader, error) {
	switch {
	case t.ByRows():
		codes := NewRowCodes(t, rows, cols, from)
		return io.MultiReader(codes, &tailReader{tail: func() []byte { return F32Bytes(codes.Scales) }}), nil
	case t == dtype.NF4 || t == dtype.FP4:
		codes := NewCodes(FourBitOf(t), dtype.BlockElements, rows*cols, from)
		return io.MultiReader(codes, &tailReader{tail: func() []byte { return NewScales(codes.Absmax).Append(nil) }}), nil
	}
	return nil, fmt.Errorf("%v is not a type weights are coded in", t)
}

// tailReader reads as the storage behind the codes, once all are made.
type tailReader struct {
	tail func() []byte
	all  *bytes.Reader
}

func (r *tailReader) Read(p []byte) (int, error) {
	if r.all == nil {
		r.all = bytes.NewReader(r.tail())
	}
	return r.all.Read(p)
}

// Codes reads as the packed codes of a tensor, made while it is read.
type Codes struct {
	// Absmax of the blocks; all are known after io.EOF.
	Absmax []float32
	parallelReader

	code  *FourBit
	block int64
	n     int64
	from  ReadFunc
}

// NewCodes codes n numbers in blocks of a given even size that divides 65536.
func NewCodes(code *FourBit, block int, n int64, from ReadFunc) *Codes {
	c := &Codes{Absmax: make([]float32, (n+int64(block)-1)/int64(block)), code: code, block: int64(block), n: n, from: from}
	c.parts, c.make = partsOf(n), c.encodePart
	return c
}

func (c *Codes) encodePart(part int64, r *buffer) ([]byte, error) {
	first := part * partElements
	n := int(min(c.n-first, partElements))
	r.resize(n, ceil(n, 2))
	if err := c.from(first, r.numbers); err != nil {
		return nil, err
	}
	absmax := c.Absmax[first/c.block:][:ceil(n, int(c.block))]
	c.code.Encode(r.bytes, absmax, r.numbers, int(c.block))
	if firstNonFinite(absmax) < 0 {
		return r.bytes, nil
	}
	bad := firstNonFinite(r.numbers)
	return nil, fmt.Errorf("element %d is %v, which has no 4-bit code", first+int64(bad), r.numbers[bad])
}

// pieceElements is how many elements are one part of a stream: whole blocks of every size
// there is.
const partElements = 64 << 10

func partsOf(n int64) int64 { return (n + partElements - 1) / partElements }
