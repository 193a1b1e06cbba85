package cpu

import (
	"spillway/device"
	"spillway/op"
)

// inParts computes a call on 16-bit tensors of one shape some elements at a time: operands are widened
// into buffers of each worker, which stay in the cache, and outputs are rounded from there. do gets the
// operands and then the outputs. It has the bits of widened, which takes whole tensors through memory.
func inParts(c op.Call, workers int, do func(v [][]float32)) Program {
	b := newPartBuffers(c, workers, widenedAtOnce)
	work := rowsOf(c.Out[0].Shape.Elements(), 1, func(worker, from, to int) {
		for i := from; i < to; i += widenedAtOnce {
			b.compute(worker, i, min(i+widenedAtOnce, to), do)
		}
	})
	return work.program(0, b.set)
}

// worksInParts says that all operands and outputs of a call are of one 16-bit type and one shape, and
// that nothing is added to.
func worksInParts(c op.Call) bool {
	if c.Attr.Accumulate {
		return false
	}
	for _, list := range [][]op.Type{c.In, c.Out} {
		for _, t := range list {
			if !narrow(t.DType) || t.DType != c.In[0].DType || !t.Shape.Equal(c.In[0].Shape) {
				return false
			}
		}
	}
	return true
}

// allWide says that a call has no 16-bit operands and outputs.
func allWide(c op.Call) bool { return !hasNarrow(c.In) && !hasNarrow(c.Out) }

// partBuffers holds the buffers of inParts.
type partBuffers struct {
	call  op.Call
	whole [][]uint16    // operands and outputs
	room  [][][]float32 // by worker
	views [][][]float32 // by worker: what of them is in use
}

func newPartBuffers(c op.Call, workers, elements int) *partBuffers {
	n := len(c.In) + len(c.Out)
	b := &partBuffers{call: c, whole: make([][]uint16, n)}
	for range workers {
		room := make([][]float32, n)
		for i := range room {
			room[i] = make([]float32, elements)
		}
		b.room, b.views = append(b.room, room), append(b.views, make([][]float32, n))
	}
	return b
}

func (b *partBuffers) set(l *device.Launch) {
	for i := range b.whole {
		b.whole[i] = view[uint16](l.Buffers[i])
	}
}

// compute does elements from to to.
func (b *partBuffers) compute(worker, from, to int, do func(v [][]float32)) {
	of, v, in := b.call.In[0].DType, b.views[worker], len(b.call.In)
	for i, whole := range b.whole {
		v[i] = b.room[worker][i][:to-from]
		if i < in {
			of.Widen(v[i], whole[from:to])
		}
	}
	do(v)
	for i := in; i < len(v); i++ {
		of.Narrow(b.whole[i][from:to], v[i])
	}
}
