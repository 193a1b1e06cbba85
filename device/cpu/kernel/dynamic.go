package kernel

import "spillway/quant"

// DecodeDynamic writes the numbers of a block of 8-bit dynamic codes: the value of each
// times the block's absmax.
func DecodeDynamic(dst []float32, codes []byte, absmax float32, code *quant.Dynamic) {
	n := len(dst) &^ (lanesMost - 1)
	active.fromDynamic(dst[:n], codes[:n], absmax, code)
	code.Decode(dst[n:], codes[n:], absmax)
}

func fromDynamicGo(dst []float32, codes []byte, absmax float32, code *quant.Dynamic) {
	code.Decode(dst, codes, absmax)
}
