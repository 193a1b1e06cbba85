package cpu

import (
	"math"
	"slices"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// states are what an optimizer keeps of a weight: none, one or two tensors.
type states struct {
	all   []*state
	coded bool    // some of them
	clip  float32 // what the gradient is multiplied by
}

// newStates takes the operands between the gradient and the clip factor.
func newStates(c op.Call, workers int) *states {
	kept := c.In[2 : len(c.In)-1]
	s := &states{coded: slices.ContainsFunc(kept, func(t op.Type) bool { return t.DType.Block() })}
	for _, t := range kept {
		s.all = append(s.all, newState(t, workers))
	}
	return s
}

func (s *states) set(l *device.Launch, clip float32) {
	s.clip = clip
	for i, one := range s.all {
		one.set(l.Buffers[2+i])
	}
}

// each gives a range, whole or in parts, with its gradient and its states to be changed.
// Coded ones are taken block by block; elements without a finite gradient are left out
// and have their states set to zero.
func (s *states) each(worker, from, to int, g []float32, do func(from, to int, g []float32, s [2][]float32)) {
	if !s.coded {
		do(from, to, g, s.open(worker, from, to))
		return
	}
	for i := from; i < to; i += dtype.Dyn8Elements {
		j := min(i+dtype.Dyn8Elements, to)
		s.finiteRuns(i, g[i-from:j-from], s.open(worker, i, j), do)
		for _, one := range s.all {
			one.close(worker, i, j)
		}
	}
}

func (s *states) open(worker, from, to int) (part [2][]float32) {
	for i, one := range s.all {
		part[i] = one.open(worker, from, to)
	}
	return part
}

// finiteRuns gives the stretches of elements that have a gradient: nearly always one.
func (s *states) finiteRuns(at int, g []float32, kept [2][]float32, do func(from, to int, g []float32, s [2][]float32)) {
	if finite(kernel.Largest(g) * s.clip) {
		do(at, at+len(g), g, kept)
		return
	}
	for i := 0; i < len(g); i++ {
		first := i
		for i < len(g) && finite(g[i]*s.clip) {
			i++
		}
		var part [2][]float32
		for k := range s.all {
			part[k] = kept[k][first:i]
			if i < len(g) {
				kept[k][i] = 0
			}
		}
		do(at+first, at+i, g[first:i], part)
	}
}

func finite(f float32) bool {
	const infinity = 0x7f800000
	return math.Float32bits(f)&infinity != infinity
}

// state is one tensor, in f32 or coded in 8 bits: then a block of it is decoded, changed
// and coded again in a worker's own memory, and never all of it.
type state struct {
	f32    []float32
	code   *quant.Dynamic // nil for f32
	n      int
	absmax []float32
	codes  []byte
	room   [][dtype.Dyn8Elements]float32 // by worker
}

func newState(t op.Type, workers int) *state {
	s := &state{n: int(t.Shape.Elements())}
	if t.DType.Block() {
		s.code, s.room = quant.DynamicOf(t.DType), make([][dtype.Dyn8Elements]float32, workers)
	}
	return s
}

func (s *state) set(b device.Buffer) {
	if s.code == nil {
		s.f32 = view[float32](b)
		return
	}
	var scales []byte
	scales, s.codes = quant.View8(s.n, b.Host())
	s.absmax = view[float32](device.Buffer{Memory: b.Memory, Offset: b.Offset, Bytes: int64(len(scales))})
}

// open gives the numbers from..to to be changed; coded ones are one block.
func (s *state) open(worker, from, to int) []float32 {
	if s.code == nil {
		return s.f32[from:to]
	}
	block := s.room[worker][:to-from]
	kernel.DecodeDynamic(block, s.codes[from:to], s.absmax[from/dtype.Dyn8Elements], s.code)
	return block
}

// close takes them back.
func (s *state) close(worker, from, to int) {
	if s.code != nil {
		s.absmax[from/dtype.Dyn8Elements] = kernel.EncodeDynamic(s.codes[from:to], s.room[worker][:to-from], s.code)
	}
}
