package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// dequantize decodes a 4-bit tensor, a group of blocks after another: first their
// absmax, then the elements, for a narrow type through a part of it that stays in the
// cache.
func dequantize(c op.Call, workers int) program {
	n, to := int(c.In[0].Shape.Elements()), c.Out[0].DType
	o := &decoding{n: n, code: quant.FourBitOf(c.In[0].DType), narrowing: narrowing[to], room: make([]decodingRoom, workers)}
	const step = decodedBlocks * dtype.BlockElements
	work := &rows{n: n, step: step, do: o.piece}
	return program{run: func(p *kernel.Pool, l *device.Launch) {
		o.codes, o.scales = quant.View4(n, l.Buffers[0].Host())
		if to == dtype.F32 {
			o.wide = f32(l, 1)
		} else {
			o.narrow = view[uint16](l.Buffers[1])
		}
		work.start(p)
	}}
}

// decodedBlocks is how many blocks are decoded at a time: 16 KiB of f32.
const decodedBlocks = 64

type decoding struct {
	n         int
	code      *quant.FourBit
	codes     []byte
	scales    quant.Scales
	wide      []float32
	narrow    []uint16
	narrowing func(dst []uint16, src []float32) // nil for f32
	room      []decodingRoom
}

// decodingRoom is what a worker decodes in.
type decodingRoom struct {
	absmax [decodedBlocks]float32
	wide   [decodedBlocks * dtype.BlockElements]float32
}

func (o *decoding) piece(worker, from, to int) {
	room := &o.room[worker]
	absmax := room.absmax[:(to-from+dtype.BlockElements-1)/dtype.BlockElements]
	o.scales.Absmax(absmax, from/dtype.BlockElements, &quant.Signed.Values)
	if o.narrowing == nil {
		kernel.DecodeFourBit(o.wide[from:to], o.codes[from/2:], absmax, o.code)
		return
	}
	wide := room.wide[:to-from]
	kernel.DecodeFourBit(wide, o.codes[from/2:], absmax, o.code)
	o.narrowing(o.narrow[from:to], wide)
}
