package kernel

import (
	"math"

	"spillway/quant"
)

// DecodeDynamic writes the numbers of a block of 8-bit dynamic codes: the value of each
// times the block's absmax.
func DecodeDynamic(dst []float32, codes []byte, absmax float32, code *quant.Dynamic) {
	n := len(dst) &^ (lanesMost - 1)
	active.fromDynamic(dst[:n], codes[:n], absmax, code)
	code.Decode(dst[n:], codes[n:], absmax)
}

// EncodeDynamic codes a block of what an optimizer keeps and returns its absmax: it is
// code.EncodeState.
func EncodeDynamic(codes []byte, src []float32, code *quant.Dynamic) (absmax float32) {
	return active.toDynamic(codes, src, code)
}

// Largest is the largest magnitude; not a number where one is not, infinite where one is.
func Largest(x []float32) float32 {
	n := len(x) &^ (lanesMost - 1)
	return math.Float32frombits(max(active.largest(x[:n]), largestGo(x[n:])))
}

// largestGo gives bits, which are in the order of magnitudes.
func largestGo(x []float32) (most uint32) {
	for _, f := range x {
		most = max(most, math.Float32bits(f)&^(1<<31))
	}
	return most
}

func fromDynamicGo(dst []float32, codes []byte, absmax float32, code *quant.Dynamic) {
	code.Decode(dst, codes, absmax)
}

func toDynamicGo(codes []byte, src []float32, code *quant.Dynamic) float32 {
	return code.EncodeState(codes, src)
}
