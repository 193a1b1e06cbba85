package quant

import (
	"fmt"
	"math"

	"spillway/dtype"
)

// RowI8 is the type of LLM.int8: integers from -127 to 127, in 127ths of the absmax of
// their row. Elements are rounded to f16 first, the precision the format is defined on.
var RowI8 = Register(rowCode{encodeRowI8, decodeRowI8}.codec("i8row", "int8", "8 bits: integers, a scale per row, as in LLM.int8"))

// absMaxI8 is the absmax of a row, in f16, and the factor that brings the row to integers.
func absMaxI8(row []float32) (absmax, factor float32) {
	absmax = dtype.FromF16(dtype.ToF16(AbsMax(row)))
	if absmax > 0 {
		factor = 1 / absmax * 127 // in this order, as PyTorch divides a constant
	}
	return absmax, factor
}

// int8Of is the code of x, rounded to f16 before and to an integer after.
func int8Of(x, factor float32) byte {
	half := dtype.FromF16(dtype.ToF16(x))
	return byte(int8(math.RoundToEven(float64(half * factor))))
}

func rowI8Go(codes []byte, row []float32, factor float32) {
	for i, x := range row {
		codes[i] = int8Of(x, factor)
	}
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

const one127th = 7.874015718698502e-3 // bitsandbytes' constant

func decodeRowI8(dst []float32, codes []byte, scale float32) {
	for i := range dst {
		dst[i] = float32(float32(int8(codes[i]))*scale) * one127th
	}
}
