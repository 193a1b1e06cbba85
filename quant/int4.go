package quant

import (
	"encoding/binary"
	"math"

	"spillway/dtype"
)

// RowI4 stores keys and values of generation in 4.5 bits: a row is 4-bit codes, the first of two
// numbers in the lower half of a byte, and an f16 scale for every RowI4Group numbers. Code c is
// (c-8) times the scale. The storage is the codes of all rows, and behind them the scales of all rows.
var RowI4 = Register(Codec{Name: "i4row", Alias: "int4", Title: "4 bits: integers, a scale for every 32, for caches of keys and values", Cache: true,
	Bytes: func(n int64) int64 { return codesI4(n) + scalesI4(n) }, Encode: encodeRowsI4, Decode: decodeRangeI4})

// RowI4Group is how many numbers of a row share a scale.
const RowI4Group = 32

func codesI4(cols int64) int64  { return (cols + 1) / 2 }
func scalesI4(cols int64) int64 { return 2 * ((cols + RowI4Group - 1) / RowI4Group) }

// encodeGroupI4 makes the codes of numbers that share a scale, an f16. The scale brings the number of largest
// magnitude to code 0, so that all 16 codes are used; it is rounded before numbers are.
func encodeGroupI4(codes []byte, row []float32) (scale uint16) {
	var most float32
	for _, x := range row {
		if a := float32(math.Abs(float64(x))); a > float32(math.Abs(float64(most))) || a != a {
			most = x
		}
	}
	scale = dtype.ToF16(most * -0.125)
	by := dtype.FromF16(scale)
	for i, x := range row {
		c := byte(8)
		if by != 0 {
			c = byte(min(max(math.RoundToEven(float64(x/by)), -8), 7) + 8)
		}
		codes[i/2] |= c << (4 * (i & 1))
	}
	return scale
}

func encodeRowI4(codes, scales []byte, row []float32) {
	clear(codes)
	for g := 0; g < len(row); g += RowI4Group {
		scale := encodeGroupI4(codes[g/2:], row[g:min(g+RowI4Group, len(row))])
		binary.LittleEndian.PutUint16(scales[g/RowI4Group*2:], scale)
	}
}

// decodeRowI4 reads elements of a row from the first-th on.
func decodeRowI4(dst []float32, codes, scales []byte, first int) {
	for i := range dst {
		at := first + i
		by := dtype.FromF16(binary.LittleEndian.Uint16(scales[at/RowI4Group*2:]))
		dst[i] = float32(int(codes[at/2]>>(4*(at&1))&15)-8) * by
	}
}

// rowI4 is where a row of a tensor of n elements in rows of cols is.
func rowI4(storage []byte, n, cols, row int) (codes, scales []byte) {
	each, behind := int(codesI4(int64(cols))), int(scalesI4(int64(cols)))
	return storage[row*each:][:each], storage[n/cols*each+row*behind:][:behind]
}

func encodeRowsI4(dst []byte, src []float32, cols int) error {
	for row := range len(src) / cols {
		codes, scales := rowI4(dst, len(src), cols, row)
		encodeRowI4(codes, scales, src[row*cols:(row+1)*cols])
	}
	return nil
}

func decodeRangeI4(dst []float32, storage []byte, n, cols, first int) {
	for len(dst) > 0 {
		row, at := first/cols, first%cols
		codes, scales := rowI4(storage, n, cols, row)
		count := min(len(dst), cols-at)
		decodeRowI4(dst[:count], codes, scales, at)
		dst, first = dst[count:], first+count
	}
}
