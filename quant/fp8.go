package quant

import "spillway/dtype"

// RowF8 is 8-bit floats (F8E4M3) with a scale for each row that brings its absmax to the
// largest of them.
var RowF8 = Register(rowCode{encodeRowF8, decodeRowF8}.codec("f8row", "fp8", "8 bits: e4m3 floats, a scale per row"))

// largestF8 is the largest number an F8E4M3 holds.
const largestF8 = 448

// valuesF8 are the numbers of all codes.
var valuesF8 = func() (v [256]float32) {
	for c := range v {
		v[c] = dtype.FromF8E4M3(uint8(c))
	}
	return v
}()

func encodeRowF8(codes []byte, row []float32) (scale float32, err error) {
	scale = AbsMax(row) / largestF8
	for i, x := range row {
		codes[i] = 0
		if scale > 0 {
			codes[i] = dtype.ToF8E4M3(x / scale)
		}
	}
	return scale, nil
}

func decodeRowF8(dst []float32, codes []byte, scale float32) {
	for i := range dst {
		dst[i] = valuesF8[codes[i]] * scale
	}
}
