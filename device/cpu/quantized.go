package cpu

import (
	"spillway/device/cpu/kernel"
	"spillway/op"
	"spillway/quant"
)

// quantizedWeight decodes any part of a quantized weight: with vectors where its format has
// a kernel here, otherwise as its codec does.
type quantizedWeight struct {
	codec   *quant.Codec
	n, cols int
	raw     []byte // all of its storage

	// Of the 4-bit formats.
	fourBit *quant.FourBit
	codes   []byte
	scales  quant.Scales
}

func newQuantizedWeight(t op.Type) *quantizedWeight {
	return &quantizedWeight{codec: quant.Of(t.DType), n: int(t.Shape.Elements()), cols: int(t.Shape.Last()), fourBit: quant.FourBitOf(t.DType)}
}

// bind says where the bytes are.
func (w *quantizedWeight) bind(raw []byte) {
	w.raw = raw
	if w.fourBit != nil {
		w.codes, w.scales = quant.View4(w.n, raw)
	}
}

// decodedBlocks is how many 4-bit blocks are decoded at a time: 16 KiB of f32.
const decodedBlocks = 64

// decodeScratch is what a worker decodes in.
type decodeScratch struct {
	absmax [decodedBlocks]float32
	block  [quant.FourBitBlock]float32
}

// decode writes the elements from the first-th on.
func (w *quantizedWeight) decode(scratch *decodeScratch, dst []float32, first int) {
	if w.fourBit == nil {
		w.codec.Decode(dst, w.raw, w.n, w.cols, first)
		return
	}
	if in := first % quant.FourBitBlock; in != 0 { // from the middle of a block
		n := min(len(dst), quant.FourBitBlock-in)
		w.decodeBlocks(scratch, scratch.block[:min(quant.FourBitBlock, w.n-(first-in))], first-in)
		copy(dst[:n], scratch.block[in:])
		dst, first = dst[n:], first+n
	}
	for len(dst) > 0 {
		n := min(len(dst), decodedBlocks*quant.FourBitBlock)
		w.decodeBlocks(scratch, dst[:n], first)
		dst, first = dst[n:], first+n
	}
}

// decodeBlocks decodes at most decodedBlocks from the beginning of one on; the last may
// be cut.
func (w *quantizedWeight) decodeBlocks(scratch *decodeScratch, dst []float32, first int) {
	absmax := scratch.absmax[:(len(dst)+quant.FourBitBlock-1)/quant.FourBitBlock]
	w.scales.Absmax(absmax, first/quant.FourBitBlock, &quant.Signed.Values)
	kernel.DecodeFourBit(dst, w.codes[first/2:], absmax, w.fourBit)
}
