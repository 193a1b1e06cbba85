package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"spillway/dtype"
)

// RowCodes reads as the codes of a tensor of a row type, made while it is read: whole
// rows are pulled and coded, on all processors.
type RowCodes struct {
	// Scales of the rows; all are known after io.EOF.
	Scales []float32
	parallelReader

	kind dtype.Type
	cols int64
	from ReadFunc
}

// NewRowCodes codes a tensor of a row type.
func NewRowCodes(kind dtype.Type, rows, cols int64, from ReadFunc) *RowCodes {
	c := &RowCodes{Scales: make([]float32, rows), kind: kind, cols: cols, from: from}
	c.parts, c.make = (rows+c.rowsPerPart()-1)/c.rowsPerPart(), c.encodePart
	return c
}

// step is how many rows are one part.
func (c *RowCodes) rowsPerPart() int64 { return max(1, partElements/max(c.cols, 1)) }

// some codes the rows of a part.
func (c *RowCodes) encodePart(part int64, r *buffer) ([]byte, error) {
	first := part * c.rowsPerPart()
	scales := c.Scales[first:min(first+c.rowsPerPart(), int64(len(c.Scales)))]
	n := len(scales) * int(c.cols)
	r.resize(n, n)
	if err := c.from(first*c.cols, r.numbers); err != nil {
		return nil, err
	}
	for i := range scales {
		from, to := i*int(c.cols), (i+1)*int(c.cols)
		scale, err := c.row(r.bytes[from:to], r.numbers[from:to])
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", first+int64(i), err)
		}
		scales[i] = scale
	}
	return r.bytes, nil
}

func (c *RowCodes) row(codes []byte, row []float32) (float32, error) {
	scale, err := encodeRow(c.kind, codes, row)
	if bad := firstNonFinite([]float32{scale}); bad >= 0 && err == nil {
		bad = firstNonFinite(row)
		err = fmt.Errorf("element %d is %v, which has no 8-bit code", bad, row[bad])
	}
	return scale, err
}

// Floats are numbers as the bytes of f32.
func F32Bytes(list []float32) []byte {
	b := make([]byte, 0, 4*len(list))
	for _, f := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}
