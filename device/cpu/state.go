package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// states are the optimizer states of a weight: none, one or two tensors.
type states struct {
	all       []*state
	quantized bool    // some of them
	chunk     int     // how many elements are opened at once; 0 for all
	clip      float32 // what the gradient is multiplied by
	flush     [2]bool // of each whether denormal numbers in it become zero, see flushesDenormals
}

// newStates takes the operands between the gradient and the clip factor.
func newStates(c op.Call, workers int) *states {
	s := &states{}
	if narrow(c.In[0].DType) { // the weight is opened with its states
		s.chunk = widenedAtOnce
	}
	for _, t := range c.In[2 : len(c.In)-1] {
		switch {
		case t.DType.Block():
			s.quantized, s.chunk = true, quant.StateBlock
		case narrow(t.DType) && !s.quantized:
			s.chunk = widenedAtOnce
		}
		s.flush[len(s.all)] = flushesDenormals(t.DType)
		s.all = append(s.all, newState(t, workers))
	}
	return s
}

func (s *states) set(l *device.Launch, clip float32) {
	s.clip = clip
	for i, one := range s.all {
		one.set(l, 2+i, i)
	}
}

// each calls do for a range, whole or in parts, with the gradients and with the states to be
// changed. 8-bit states are taken block by block; elements whose gradient is not finite are
// left out, and their states set to zero.
func (s *states) each(worker, from, to int, g []float32, do func(from, to int, g []float32, s [2][]float32)) {
	if s.chunk == 0 {
		do(from, to, g, s.open(worker, from, to))
		return
	}
	for i := from; i < to; i += s.chunk {
		j := min(i+s.chunk, to)
		kept := s.open(worker, i, j)
		if s.quantized {
			s.finiteRuns(i, g[i-from:j-from], kept, do)
		} else {
			do(i, j, g[i-from:j-from], kept)
		}
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

// finiteRuns calls do for the runs of elements with finite gradients: nearly always one.
func (s *states) finiteRuns(at int, g []float32, kept [2][]float32, do func(from, to int, g []float32, s [2][]float32)) {
	if finite(quant.AbsMax(g) * s.clip) {
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

// flushesDenormals reports whether denormal numbers of a state become zero before they are
// used: in f32 and bf16, which can represent them. In f16 such numbers become 2^-24, in both
// states of Adam alike; in 8 bits whole blocks become zero, see EncodeState of package quant.
func flushesDenormals(t dtype.Type) bool { return t == dtype.F32 || t == dtype.BF16 }

// state is one tensor. Where it is in 16 or 8 bits, a part at a time is widened to f32,
// changed and rounded again in a worker's own buffer; no f32 copy of the whole exists.
type state struct {
	of      dtype.Type
	n       int
	f32     []float32
	halves  []uint16         // of a 16-bit type
	code    *quant.StateCode // of a block type
	dynamic *quant.Dynamic   // of those that vectors decode
	absmax  []float32
	codes   []byte
	scratch [][]float32 // by worker

	stream op.Stream // that a state in bf16 is rounded with, and its position of the first element
	first  uint64
}

func newState(t op.Type, workers int) *state {
	s := &state{of: t.DType, n: int(t.Shape.Elements())}
	if t.DType == dtype.F32 {
		return s
	}
	if t.DType.Block() {
		s.code, s.dynamic = quant.Of(t.DType).State, quant.DynamicOf(t.DType)
	}
	for range workers {
		s.scratch = append(s.scratch, make([]float32, widenedAtOnce))
	}
	return s
}

// set takes the operand of a launch that is the state of a number.
func (s *state) set(l *device.Launch, operand, number int) {
	b, args := l.Buffers[operand], argsOf(l)
	s.stream, s.first = op.StateStream(args.Key, number), args.Row
	switch {
	case s.code != nil:
		var scales []byte
		scales, s.codes = quant.View8(s.n, b.Host())
		s.absmax = view[float32](device.Buffer{Memory: b.Memory, Offset: b.Offset, Bytes: int64(len(scales))})
	case narrow(s.of):
		s.halves = view[uint16](b)
	default:
		s.f32 = view[float32](b)
	}
}

// open gives the elements from..to as f32, to be changed; of 8-bit states they are one block.
func (s *state) open(worker, from, to int) []float32 {
	switch {
	case s.code != nil:
		block := s.scratch[worker][:to-from]
		if scale := s.absmax[from/quant.StateBlock]; s.dynamic != nil {
			kernel.DecodeDynamic(block, s.codes[from:to], scale, s.dynamic)
		} else {
			s.code.Decode(block, s.codes[from:to], scale)
		}
		return block
	case narrow(s.of):
		part := s.scratch[worker][:to-from]
		widening[s.of](part, s.halves[from:to])
		return part
	}
	return s.f32[from:to]
}

// close stores what open gave.
func (s *state) close(worker, from, to int) {
	switch {
	case s.code != nil:
		s.absmax[from/quant.StateBlock] = s.code.Encode(s.codes[from:to], s.scratch[worker][:to-from])
	case s.of == dtype.BF16:
		kernel.RoundStates(s.halves[from:to], s.scratch[worker][:to-from], s.stream, s.first+uint64(from))
	case s.of == dtype.F16:
		s.of.Narrow(s.halves[from:to], s.scratch[worker][:to-from])
		clampF16(s.halves[from:to], s.scratch[worker])
	}
}

// Bits of f16 numbers without their sign.
const (
	minF16      = 0x0001 // 2^-24
	maxF16      = 0x7bff // 65504
	infiniteF16 = 0x7c00
	signF16     = 0x8000
)

// clampF16 corrects numbers that rounding to f16 took out of range: nonzero numbers that
// became 0 get the smallest magnitude of f16, finite ones that became infinite the largest.
func clampF16(half []uint16, of []float32) {
	for i, h := range half {
		switch size := h &^ signF16; {
		case size == 0 && of[i] != 0:
			half[i] = h | minF16
		case size == infiniteF16 && finite(of[i]):
			half[i] = h&signF16 | maxF16
		}
	}
}
