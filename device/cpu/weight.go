package cpu

import (
	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
)

// weight is what an update changes. Where it is in bf16, a part at a time is widened to f32,
// changed, and rounded stochastically in a worker's own buffer.
type weight struct {
	wide    []float32
	halves  []uint16
	scratch [][]float32 // by worker, where the weight is in bf16

	key, first uint64 // random stream, and its position of the first element
}

func newWeight(of dtype.Type, workers int) *weight {
	w := &weight{}
	for range workers {
		if narrow(of) {
			w.scratch = append(w.scratch, make([]float32, widenedAtOnce))
		}
	}
	return w
}

func (w *weight) set(l *device.Launch) {
	if w.scratch == nil {
		w.wide = F32(l, 0)
		return
	}
	w.halves = view[uint16](l.Buffers[0])
	a := argsOf(l)
	w.key, w.first = a.Key, a.Row
}

// open gives the elements from..to as f32, to be changed; of a weight in bf16 at most
// widenedAtOnce.
func (w *weight) open(worker, from, to int) []float32 {
	if w.scratch == nil {
		return w.wide[from:to]
	}
	part := w.scratch[worker][:to-from]
	dtype.BF16.Widen(part, w.halves[from:to])
	return part
}

// close stores what open gave.
func (w *weight) close(worker, from, to int) {
	if w.scratch != nil {
		kernel.ToBF16Randomly(w.halves[from:to], w.scratch[worker][:to-from], w.key, w.first+uint64(from))
	}
}
