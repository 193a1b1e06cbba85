package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
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
	to := c.Out[0].DType
	o := &decoding{weight: newQuantizedWeight(c.In[0]), narrowing: narrowing[to], scratch: make([]decodeScratch, workers)}
	work := &rows{n: o.weight.n, step: decodedPiece, do: o.piece}
	if to != dtype.F32 {
		o.wide = make([]float32, workers*decodedPiece)
	}
	return Program{Run: func(p *kernel.Pool, l *device.Launch) {
		o.weight.bind(l.Buffers[0].Host())
		if to == dtype.F32 {
			o.wide = F32(l, 1)
		} else {
			o.narrow = view[uint16](l.Buffers[1])
		}
		work.start(p)
	}}
}

// decodedPiece is how many elements are decoded at a time: 16 KiB of f32.
const decodedPiece = decodedBlocks * quant.FourBitBlock

type decoding struct {
	weight    *quantizedWeight
	wide      []float32 // the output, or a piece for each worker
	narrow    []uint16
	narrowing func(dst []uint16, src []float32) // nil for f32
	scratch   []decodeScratch
}

func (o *decoding) piece(worker, from, to int) {
	if o.narrowing == nil {
		o.weight.decode(&o.scratch[worker], o.wide[from:to], from)
		return
	}
	wide := o.wide[worker*decodedPiece:][:to-from]
	o.weight.decode(&o.scratch[worker], wide, from)
	o.narrowing(o.narrow[from:to], wide)
}
