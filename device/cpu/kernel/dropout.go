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
