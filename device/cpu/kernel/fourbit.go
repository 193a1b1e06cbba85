package kernel

import "spillway/quant"

// fourBitBlock is how many elements of a 4-bit tensor share an absmax.
const fourBitBlock = 64

// DecodeFourBit writes the numbers of 4-bit codes: the value of each code times the
// absmax of its block of 64. Codes are two to a byte, the first in the upper half; the
// last block may be cut short.
func DecodeFourBit(dst []float32, codes []byte, absmax []float32, code *quant.FourBit) {
	blocks := len(dst) / fourBitBlock
	whole := blocks * fourBitBlock
	active.fourBit(dst[:whole], codes[:whole/2], absmax[:blocks], code)
	code.Decode(dst[whole:], codes[whole/2:], absmax[blocks:], fourBitBlock)
}

// fourBitGo decodes whole blocks.
func fourBitGo(dst []float32, codes []byte, absmax []float32, code *quant.FourBit) {
	code.Decode(dst, codes, absmax, fourBitBlock)
}
