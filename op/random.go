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
	bits := math.Float32bits(f)
	if bits&0x7f800000 == 0x7f800000 {
		return dtype.ToBF16(f)
	}
	return uint16((bits + s.Bits(position)>>8) >> 16)
}

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
