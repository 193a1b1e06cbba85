package cpu

import (
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// quantizedWeight decodes any part of a weight in a block format.
type quantizedWeight struct {
	kind    dtype.Type
	n, cols int
	raw     []byte // all of its storage

	// Of 4 bits.
	code   *quant.FourBit
	codes  []byte
	scales quant.Scales
}

func newQuantizedWeight(t op.Type) *quantizedWeight {
	w := &quantizedWeight{kind: t.DType, n: int(t.Shape.Elements()), cols: int(t.Shape.Last())}
	if !t.DType.ByRows() {
		w.code = quant.FourBitOf(t.DType)
	}
	return w
}

// bind says where the bytes are.
func (w *quantizedWeight) bind(raw []byte) {
	w.raw = raw
	if w.code != nil {
		w.codes, w.scales = quant.View4(w.n, raw)
	}
}

// decodedBlocks is how many blocks of 4 bits are decoded at a time: 16 KiB of f32.
const decodedBlocks = 64

// decodeScratch is what a worker decodes in.
type decodeScratch struct {
	absmax [decodedBlocks]float32
	block  [quant.FourBitBlock]float32
}

// decode writes the elements from the first-th on.
func (w *quantizedWeight) decode(room *decodeScratch, dst []float32, first int) {
	if w.code == nil {
		w.decodeRows(dst, first)
		return
	}
	if in := first % quant.FourBitBlock; in != 0 { // from the middle of a block
		n := min(len(dst), quant.FourBitBlock-in)
		w.decodeBlocks(room, room.block[:min(quant.FourBitBlock, w.n-(first-in))], first-in)
		copy(dst[:n], room.block[in:])
		dst, first = dst[n:], first+n
	}
	for len(dst) > 0 {
		n := min(len(dst), decodedBlocks*quant.FourBitBlock)
		w.decodeBlocks(room, dst[:n], first)
		dst, first = dst[n:], first+n
	}
}

// decodeBlocks decodes at most decodedBlocks from the beginning of one on; the last may
// be cut.
func (w *quantizedWeight) decodeBlocks(room *decodeScratch, dst []float32, first int) {
	absmax := room.absmax[:(len(dst)+quant.FourBitBlock-1)/quant.FourBitBlock]
	w.scales.Absmax(absmax, first/quant.FourBitBlock, &quant.Signed.Values)
	kernel.DecodeFourBit(dst, w.codes[first/2:], absmax, w.code)
}

func (w *quantizedWeight) decodeRows(dst []float32, first int) {
	for len(dst) > 0 {
		row := first / w.cols
		n := min(len(dst), (row+1)*w.cols-first)
		quant.DecodeRow(w.kind, dst[:n], w.raw[first:], quant.RowScale(w.raw, w.n, row))
		dst, first = dst[n:], first+n
	}
}
