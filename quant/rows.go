package quant

import (
	"fmt"
	"math"

	"spillway/dtype"
)

// Rows8 codes a matrix row by row, as LLM.int8 keeps weights: each row has its absmax,
// and elements are whole 127ths of it. Elements are rounded to f16 first, which is the
// precision the format is defined on; cols is the length of a row. It is the plain form of
// what the row type RowI8 holds.
func Rows8(dst []int8, absmax, src []float32, cols int) {
	for r := range absmax {
		row := src[r*cols : (r+1)*cols]
		most, factor := absMaxI8(row)
		absmax[r] = most
		for i, x := range row {
			dst[r*cols+i] = int8(int8Of(x, factor))
		}
	}
}

// rangeI8 is the absmax of a row, in f16, and what brings the row to whole numbers.
func absMaxI8(row []float32) (absmax, factor float32) {
	absmax = dtype.FromF16(dtype.ToF16(AbsMax(row)))
	if absmax > 0 {
		factor = 1 / absmax * 127 // in this order, as PyTorch divides a constant
	}
	return absmax, factor
}

// wholeOf is the code of x, rounded to f16 before and to a whole number after.
func int8Of(x, factor float32) byte {
	half := dtype.FromF16(dtype.ToF16(x))
	return byte(int8(math.RoundToEven(float64(half * factor))))
}

func rowI8Go(codes []byte, row []float32, factor float32) {
	for i, x := range row {
		codes[i] = int8Of(x, factor)
	}
}

// FromRows8 is the inverse.
func FromRows8(dst []float32, codes []int8, absmax []float32, cols int) {
	for i, c := range codes {
		dst[i] = float32(float32(c)*absmax[i/cols]) * one127th
	}
}

const one127th = 7.874015718698502e-3 // bitsandbytes' constant

// largestF8 is the largest number an F8E4M3 holds.
const largestF8 = 448

// valuesF8 are the numbers of all codes.
var valuesF8 = func() (v [256]float32) {
	for c := range v {
		v[c] = dtype.FromF8E4M3(uint8(c))
	}
	return v
}()

// encodeRow codes one row of a row type and gives its scale.
func encodeRow(t dtype.Type, codes []byte, row []float32) (scale float32, err error) {
	if t == dtype.RowI8 {
		return encodeRowI8(codes, row)
	}
	scale = AbsMax(row) / largestF8
	for i, x := range row {
		codes[i] = 0
		if scale > 0 {
			codes[i] = dtype.ToF8E4M3(x / scale)
		}
	}
	return scale, nil
}

func encodeRowI8(codes []byte, row []float32) (float32, error) {
	absmax, factor := absMaxI8(row)
	if math.IsInf(float64(absmax), 0) {
		return 0, fmt.Errorf("its largest number is %v, which f16 cannot hold", AbsMax(row))
	}
	n := len(row) &^ (maxLanes - 1)
	active.rowI8(codes[:n], row[:n], factor)
	rowI8Go(codes[n:], row[n:], factor)
	return absmax, nil
}

// DecodeRow writes the elements of a row, or of a part of one, that has a scale.
func DecodeRow(t dtype.Type, dst []float32, codes []byte, scale float32) {
	if t == dtype.RowF8 {
		for i := range dst {
			dst[i] = valuesF8[codes[i]] * scale
		}
		return
	}
	for i := range dst {
		dst[i] = float32(float32(int8(codes[i]))*scale) * one127th
	}
}

// EncodeRows writes numbers in a row type, rows of cols. Infinities and what is not a
// number are refused.
func EncodeRows(t dtype.Type, dst []byte, src []float32, cols int) error {
	if err := checkRowsSize(t, len(src), cols, dst); err != nil {
		return err
	}
	if first := firstNonFinite(src); first >= 0 {
		return fmt.Errorf("element %d is %v, which %v cannot hold", first, src[first], t)
	}
	codes, scales := dst[:len(src)], dst[len(src):]
	for r := range len(scales) / 4 {
		scale, err := encodeRow(t, codes[r*cols:(r+1)*cols], src[r*cols:(r+1)*cols])
		if err != nil {
			return fmt.Errorf("row %d: %w", r, err)
		}
		putF32(scales, r, scale)
	}
	return nil
}

// DecodeRows reads what EncodeRows wrote.
func DecodeRows(t dtype.Type, dst []float32, src []byte, cols int) error {
	if err := checkRowsSize(t, len(dst), cols, src); err != nil {
		return err
	}
	codes, scales := src[:len(dst)], src[len(dst):]
	for r := range len(scales) / 4 {
		DecodeRow(t, dst[r*cols:(r+1)*cols], codes[r*cols:], getF32(scales, r))
	}
	return nil
}

// RowScale is the scale of a row in the storage of a tensor of n elements.
func RowScale(b []byte, n, row int) float32 { return getF32(b[n:], row) }

// sizedRows refuses storage that is not that of n elements in rows.
func checkRowsSize(t dtype.Type, n, cols int, b []byte) error {
	if !t.ByRows() {
		return fmt.Errorf("%v is not a type of rows", t)
	}
	if cols < 1 || n%cols != 0 {
		return fmt.Errorf("%d elements are not rows of %d", n, cols)
	}
	if want := int64(n/cols) * t.Bytes(int64(cols)); int64(len(b)) != want {
		return fmt.Errorf("%d bytes for %d elements of %v in rows of %d, want %d", len(b), n, t, cols, want)
	}
	return nil
}
