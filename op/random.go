package op

import (
	"math"

	"spillway/dtype"
)

// Stream is a stream of random numbers. Each is a pure function of the stream's name and
// its position there, so that recomputing, splitting or moving work never changes it.
type Stream uint64

// NewStream is one of the streams of a key, by its number.
func NewStream(key uint64, number uint32) Stream {
	return Stream(mix(key ^ uint64(number)*0x9e3779b97f4a7c15))
}

// Bits are the 24 random bits of a position. Backends must give exactly these.
func (s Stream) Bits(position uint64) uint32 { return uint32(mix(uint64(s)+position) >> 40) }

// Uniform is the random number in [0, 1) of a position.
func (s Stream) Uniform(position uint64) float32 {
	return float32(s.Bits(position)) * (1.0 / (1 << 24))
}

// RoundStochastic rounds to one of the two neighbouring bfloat16 numbers, up with the chance of how
// near that one is. Updates smaller than half a unit in the last place are then kept on
// average instead of lost. It uses the first 16 random bits of a position; numbers that
// bfloat16 can represent, infinities and NaN stay as they are.
func (s Stream) RoundStochastic(f float32, position uint64) uint16 {
	return roundBF16(f, s.Bits(position)>>8)
}

// roundBF16 adds 16 random bits to those that bfloat16 has no room for.
func roundBF16(f float32, random uint32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7f800000 == 0x7f800000 {
		return dtype.ToBF16(f)
	}
	return uint16((bits + random) >> 16)
}

// StateStream is the stream that numbers of an optimizer's state in bf16 are rounded with; the
// states of a param count from 0. Weights in bf16 have the first stream of the same key.
func StateStream(key uint64, state int) Stream { return NewStream(key, uint32(1+state)) }

// RoundState rounds a number of an optimizer's state to bfloat16 as RoundStochastic does, with
// 16 random bits of its own. Those of four neighbouring positions are parts of one number,
// which vectors and GPUs compute once for all four.
func (s Stream) RoundState(f float32, position uint64) uint16 {
	return roundBF16(f, uint32(mix(uint64(s)+position/4)>>(position%4*16))&0xffff)
}

// Line is a line of random numbers of 32 bits, for those who need one for each pair: 64 random
// bits name it, and each number then takes two multiplications of 32 bits, which GPUs have in
// plenty.
type Line struct{ start, turn uint32 }

// Line is the one at a position.
func (s Stream) Line(position uint64) Line {
	x := mix(uint64(s) + position)
	return Line{uint32(x), uint32(x >> 32)}
}

// Bits are the random bits of place i, the highest the best. Backends must give exactly these.
func (l Line) Bits(i uint32) uint32 {
	x := l.start + i*LineStep
	x = (x^x>>16)*LineFirst + l.turn
	return (x ^ x>>15) * LineSecond
}

// Words of a line for backends that compute many of its numbers at once.
func (l Line) Words() (start, turn uint32) { return l.start, l.turn }

// Factors of Line.Bits.
const (
	LineStep   = 0x9e3779b9
	LineFirst  = 0x7feb352d
	LineSecond = 0x846ca68b
)

// LineLimit is what the bits of a line are below with probability p, as f32.
func LineLimit(p float64) uint32 { return uint32(min(float64(float32(p))*(1<<32), math.MaxUint32)) }

// Uniform is one random number of a stream.
func Uniform(key uint64, stream uint32, position uint64) float32 {
	return NewStream(key, stream).Uniform(position)
}

// RoundStochastic rounds with the first stream of a key.
func RoundStochastic(f float32, key uint64, position uint64) uint16 {
	return NewStream(key, 0).RoundStochastic(f, position)
}

// Key of a random stream from numbers that name it: seed, iteration, block.
func Key(parts ...uint64) uint64 {
	var k uint64
	for _, p := range parts {
		k = mix(k ^ p)
	}
	return k
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
