package cpu

import (
	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

func init() {
	RegisterNative(op.Dequantize, dequantize, nil)
}

// dequantize decodes a weight piece by piece; for a 16-bit type through an f32 buffer that
// stays in the cache.
func dequantize(c op.Call, workers int) Program {
	to, narrows := c.Out[0].DType, narrowing[c.Out[0].DType]
	weight, room := newQuantizedWeight(c.In[0]), make([]decodeScratch, workers)
	var out, pieces []float32 // pieces: one for each worker
	var halves []uint16
	if to != dtype.F32 {
		pieces = make([]float32, workers*decodedPiece)
	}
	work := &rows{n: weight.n, step: decodedPiece, do: func(worker, from, to int) {
		if pieces == nil {
			weight.decode(&room[worker], out[from:to], from)
			return
		}
		wide := pieces[worker*decodedPiece:][:to-from]
		weight.decode(&room[worker], wide, from)
		narrows(halves[from:to], wide)
	}}
	return work.program(0, func(l *device.Launch) {
		weight.bind(l.Buffers[0].Host())
		if pieces == nil {
			out = F32(l, 1)
		} else {
			halves = view[uint16](l.Buffers[1])
		}
	})
}

// decodedPiece is how many elements are decoded at a time: 16 KiB of f32.
const decodedPiece = decodedBlocks * quant.FourBitBlock
