package kernel

import (
	"math"

	"spillway/op"
)

// Dropout multiplies numbers by 0 with probability p, else by 1/(1-p). Which ones are dropped
// follows from their positions in a random stream.
type Dropout struct {
	first uint64 // position of the first number, behind the stream's own
	below uint64 // random bits of what is dropped
	keep  float32
}

// NewDropout drops with probability p: a number is dropped where the uniform random number of
// its position is below p, compared as f32.
func NewDropout(chance float64) *Dropout {
	return &Dropout{below: uint64(math.Ceil(float64(float32(chance)) * (1 << 24))), keep: float32(1 / (1 - chance))}
}

// Start takes the stream of a launch and the position in it of the first number.
func (d *Dropout) Start(s op.Stream, first uint64) { d.first = uint64(s) + first }

// Apply multiplies the numbers at a position and at others that are stride apart.
func (d *Dropout) Apply(dst, x []float32, position, stride uint64) {
	active.drop(dst[:len(x)], x, dropScalars{d.first + position, stride, d.below, d.keep})
}

// WeightDropout drops weights of attention: those of a query by a line of random numbers, one for
// each key.
type WeightDropout struct {
	stream op.Stream
	first  uint64 // line of the first query
	below  uint32 // random bits of what is dropped
	keep   float32
}

// NewWeightDropout drops with probability p.
func NewWeightDropout(p float64) *WeightDropout {
	return &WeightDropout{below: op.LineLimit(p), keep: float32(1 / (1 - p))}
}

// Start takes the stream of a launch and the line in it of the first query.
func (d *WeightDropout) Start(s op.Stream, first uint64) { d.stream, d.first = s, first }

// lineWords name the lines of the queries of a tile.
type lineWords struct{ starts, turns [tileQ]uint32 }

func (d *WeightDropout) lines(w *lineWords, query uint64, n int) {
	for i := range n {
		w.starts[i], w.turns[i] = d.stream.Line(d.first + query + uint64(i)).Words()
	}
}

// apply multiplies the weights of some queries for a key.
func (d *WeightDropout) apply(weights []float32, w *lineWords, key int) {
	active.dropLine(weights, w, lineScalars{uint32(key) * op.LineStep, d.below, d.keep})
}

// lineScalars are the numbers of a key.
type lineScalars struct {
	at    uint32 // its place, in steps of a line
	below uint32
	keep  float32
}

func dropLineGo(x []float32, w *lineWords, s lineScalars) {
	factor := [2]float32{s.keep, 0}
	for i := range x {
		b := w.starts[i] + s.at
		b = (b^b>>16)*op.LineFirst + w.turns[i]
		b = (b ^ b>>15) * op.LineSecond
		x[i] *= factor[(uint64(b)-uint64(s.below))>>63]
	}
}

// dropScalars are the numbers of some positions.
type dropScalars struct {
	at, stride uint64
	below      uint64
	keep       float32
}

func dropGo(dst, x []float32, s dropScalars) {
	factor := [2]float32{s.keep, 0}
	for i, v := range x {
		bits := op.Stream(s.at).Bits(uint64(i) * s.stride)
		dst[i] = v * factor[(uint64(bits)-s.below)>>63] // no branch, which nobody could foresee
	}
}
