package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// state is what an optimizer keeps, in f32 or coded in 8 bits: then a block of it is
// decoded, changed and coded again in a worker's own memory, and never all of it.
type state struct {
	f32    []float32
	code   *quant.Dynamic // nil for f32
	n      int
	absmax []float32
	codes  []byte
	room   [][dtype.Dyn8Elements]float32 // per worker
}

func newState(t op.Type, workers int) *state {
	s := &state{n: int(t.Shape.Elements())}
	if t.DType.Block() {
		s.code, s.room = quant.DynamicOf(t.DType), make([][dtype.Dyn8Elements]float32, workers)
	}
	return s
}

// set takes a buffer of a launch.
func (s *state) set(b device.Buffer) {
	if s.code == nil {
		s.f32 = view[float32](b)
		return
	}
	var scales []byte
	scales, s.codes = quant.View8(s.n, b.Host())
	s.absmax = view[float32](device.Buffer{Memory: b.Memory, Offset: b.Offset, Bytes: int64(len(scales))})
}

// open gives the numbers from..to, which are one block, to be changed.
func (s *state) open(worker, from, to int) []float32 {
	if s.code == nil {
		return s.f32[from:to]
	}
	block := s.room[worker][:to-from]
	s.code.Decode(block, s.codes[from:to], s.absmax[from/dtype.Dyn8Elements])
	return block
}

// close takes them back.
func (s *state) close(worker, from, to int) {
	if s.code != nil {
		s.absmax[from/dtype.Dyn8Elements] = s.code.EncodeState(s.codes[from:to], s.room[worker][:to-from])
	}
}

// updateCoded is the program of an update rule with coded states. set takes the scalars
// of a launch and says what the gradient is multiplied by, update makes the step on some
// elements of the weight, the gradient and the states.
func updateCoded(c op.Call, workers int, set func(l *device.Launch) (clip float32), update func(w, g []float32, s [2][]float32)) program {
	u := &codedUpdate{update: update, copied: &mirror{to: c.Attr.To}}
	for _, t := range c.In[2 : len(c.In)-1] {
		u.states = append(u.states, newState(t, workers))
	}
	blocks := (c.In[0].Shape.Elements() + dtype.Dyn8Elements - 1) / dtype.Dyn8Elements
	work := rowsOf(blocks, dtype.Dyn8Elements, u.piece)
	return program{run: func(p *kernel.Pool, l *device.Launch) {
		u.w, u.g, u.clip = f32(l, 0), f32(l, 1), set(l)
		for i, s := range u.states {
			s.set(l.Buffers[2+i])
		}
		u.copied.set(l)
		work.start(p)
	}}
}

type codedUpdate struct {
	w, g   []float32
	clip   float32
	states []*state
	copied *mirror
	update func(w, g []float32, s [2][]float32)
}

// piece updates some blocks.
func (u *codedUpdate) piece(worker, first, last int) {
	for b := first; b < last; b++ {
		from, to := b*dtype.Dyn8Elements, min((b+1)*dtype.Dyn8Elements, len(u.w))
		var s [2][]float32
		for i, st := range u.states {
			s[i] = st.open(worker, from, to)
		}
		u.runs(u.w[from:to], u.g[from:to], s)
		for _, st := range u.states {
			st.close(worker, from, to)
		}
		u.copied.write(u.w, from, to)
	}
}

// runs updates what has a finite gradient, in one run most of the time; elsewhere the
// states become zero.
func (u *codedUpdate) runs(w, g []float32, s [2][]float32) {
	for from := 0; from < len(w); {
		to := from
		for to < len(w) && finite(g[to]*u.clip) {
			to++
		}
		var part [2][]float32
		for i := range u.states {
			part[i] = s[i][from:to]
			if to < len(w) {
				s[i][to] = 0
			}
		}
		u.update(w[from:to], g[from:to], part)
		from = to + 1
	}
}

func finite(f float32) bool {
	const infinity = 0x7f800000
	return math.Float32bits(f)&infinity != infinity
}
