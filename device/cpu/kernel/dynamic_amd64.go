package kernel

import (
	"math"

	"spillway/quant"
)

// What the assembly knows of the cells of package quant.
const (
	firstCell = quant.FirstCell
	signCells = quant.SignCells // 1 << 12
)

//go:noescape
func dynamicValuesAVX512(dst []float32, codes []byte, absmax float32, values *[256]float32)

//go:noescape
func dynamicCodesAVX512(codes []byte, src []float32, r float32, cells *quant.Cells, zero, below uint32)

// largestAVX512 is the bits of the largest magnitude.
//
//go:noescape
func largestAVX512(src []float32) uint32

func fromDynamicAVX512(dst []float32, codes []byte, absmax float32, code *quant.Dynamic) {
	dynamicValuesAVX512(dst, codes, absmax, &code.Values)
}

// toDynamicAVX512 codes whole vectors, which all blocks but the last of a tensor are.
func toDynamicAVX512(codes []byte, src []float32, code *quant.Dynamic) float32 {
	if len(src)%lanesMost != 0 {
		return code.EncodeState(codes, src)
	}
	absmax := math.Float32frombits(largestAVX512(src))
	zero := uint32(code.Zero())
	dynamicCodesAVX512(codes[:len(src)], src, quant.Reciprocal(absmax), code.Cells(), zero, min(zero, 1))
	return absmax
}
