package quant

import (
	"fmt"
	"io"
	"math"

	"spillway/dtype"
)

// rowCode is an 8-bit code with a scale for each row of a matrix.
type rowCode struct {
	encode func(codes []byte, row []float32) (scale float32, err error)
	decode func(dst []float32, codes []byte, scale float32)
}

// codec lays a matrix out as its codes, a byte each, and behind them the scales of its
// rows, an f32 each.
func (r rowCode) codec(name, alias, title string) Codec {
	return Codec{Name: name, Alias: alias, Title: title, Bytes: func(n int64) int64 { return n + 4 },
		Encode: r.encodeRows, Decode: r.decodeRange, Stream: r.stream, rows: &r}
}

func (r rowCode) encodeRows(dst []byte, src []float32, cols int) error {
	codes, scales := dst[:len(src)], dst[len(src):]
	for i := range len(scales) / 4 {
		scale, err := r.encode(codes[i*cols:(i+1)*cols], src[i*cols:(i+1)*cols])
		if err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		putF32(scales, i, scale)
	}
	return nil
}

func (r rowCode) decodeRange(dst []float32, storage []byte, n, cols, first int) {
	for len(dst) > 0 {
		row := first / cols
		count := min(len(dst), (row+1)*cols-first)
		r.decode(dst[:count], storage[first:], RowScale(storage, n, row))
		dst, first = dst[count:], first+count
	}
}

func (r rowCode) stream(rows, cols int64, from ReadFunc) io.Reader {
	codes := newRowCodes(r, rows, cols, from)
	return io.MultiReader(codes, &tailReader{tail: func() ([]byte, error) { return F32Bytes(codes.Scales), nil }})
}

// DecodeRow writes the elements of a row, or of a part of one, that has a scale, in a type
// with a scale for each row.
func DecodeRow(t dtype.Type, dst []float32, codes []byte, scale float32) {
	Of(t).rows.decode(dst, codes, scale)
}

// EncodeRow writes a row of a tensor of n elements, in a type whose blocks are rows, into the
// tensor's storage. A row that cannot be coded, because a number is not finite, reads as NaN.
func EncodeRow(t dtype.Type, storage []byte, n, row int, src []float32) {
	c := Of(t)
	if c.rows == nil {
		codes, scales := rowI4(storage, n, len(src), row)
		encodeRowI4(codes, scales, src)
		return
	}
	scale, err := c.rows.encode(storage[row*len(src):(row+1)*len(src)], src)
	if err != nil {
		scale = float32(math.NaN())
	}
	putF32(storage[n:], row, scale)
}

// ReadRow reads a row that EncodeRow wrote.
func ReadRow(t dtype.Type, dst []float32, storage []byte, n, row int) {
	c := Of(t)
	if c.rows == nil {
		codes, scales := rowI4(storage, n, len(dst), row)
		decodeRowI4(dst, codes, scales, 0)
		return
	}
	c.rows.decode(dst, storage[row*len(dst):(row+1)*len(dst)], RowScale(storage, n, row))
}

// RowCodeBytes is what the codes of a row take; in a tensor all codes are first, and then what scales them.
func RowCodeBytes(t dtype.Type, cols int64) int64 {
	if Of(t).rows == nil {
		return codesI4(cols)
	}
	return cols
}

// RowScale is the scale of a row in the storage of a tensor of n elements.
func RowScale(b []byte, n, row int) float32 { return getF32(b[n:], row) }

// RowCodes reads as the codes of a matrix that has a scale for each row, made while it is
// read: whole rows are pulled and encoded, on all cores.
type RowCodes struct {
	// Scales of the rows; all are known after io.EOF.
	Scales []float32
	*parallelReader
}

// NewRowCodes encodes a matrix in a type with a scale for each row.
func NewRowCodes(t dtype.Type, rows, cols int64, from ReadFunc) *RowCodes {
	return newRowCodes(*Of(t).rows, rows, cols, from)
}

func newRowCodes(code rowCode, rows, cols int64, from ReadFunc) *RowCodes {
	c, width := &RowCodes{Scales: make([]float32, rows)}, max(cols, 1)
	sameSize := func(count int64) int64 { return count }
	c.parallelReader = encodeParts(rows*cols, max(1, partElements/width)*width, from, sameSize, func(first int64, b *buffer) error {
		for at := 0; at < len(b.numbers); at += int(cols) {
			row, i := b.numbers[at:at+int(cols)], (first+int64(at))/cols
			scale, err := code.encode(b.bytes[at:], row)
			if err == nil && firstNonFinite([]float32{scale}) >= 0 {
				bad := firstNonFinite(row)
				err = fmt.Errorf("element %d is %v, which has no 8-bit code", bad, row[bad])
			}
			if err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
			c.Scales[i] = scale
		}
		return nil
	})
	return c
}

// F32Bytes are numbers as the bytes of f32.
func F32Bytes(list []float32) []byte {
	b := make([]byte, 4*len(list))
	dtype.F32.Encode(b, list)
	return b
}
