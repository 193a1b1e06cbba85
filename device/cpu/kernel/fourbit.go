package kernel

import "spillway/quant"

// DecodeFourBit writes the numbers of 4-bit codes: the value of each code times the
// absmax of its block of 64. Codes are two to a byte, the first in the upper half; the
// last block may be cut short.
func DecodeFourBit(dst []float32, codes []byte, absmax []float32, code *quant.FourBit) {
	blocks := len(dst) / quant.FourBitBlock
	whole := blocks * quant.FourBitBlock
	active.fourBit(dst[:whole], codes[:whole/2], absmax[:blocks], code)
	code.Decode(dst[whole:], codes[whole/2:], absmax[blocks:], quant.FourBitBlock)
}

// fourBitGo decodes whole blocks.
func fourBitGo(dst []float32, codes []byte, absmax []float32, code *quant.FourBit) {
	code.Decode(dst, codes, absmax, quant.FourBitBlock)
}
