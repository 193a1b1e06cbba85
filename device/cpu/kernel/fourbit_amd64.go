package kernel

import "spillway/quant"

func fourBitBlocksAVX512(dst []float32, codes []byte, absmax []float32, values *[16]float32)
func fourBitBlocksAVX2(dst []float32, codes []byte, absmax []float32, values *[16]float32)

func fourBitAVX512(dst []float32, codes []byte, absmax []float32, code *quant.FourBit) {
	fourBitBlocksAVX512(dst, codes, absmax, &code.Values)
}

func fourBitAVX2(dst []float32, codes []byte, absmax []float32, code *quant.FourBit) {
	fourBitBlocksAVX2(dst, codes, absmax, &code.Values)
}
