package op

import (
	"math"

	"spillway/dtype"
)

// Uniform is the random number in [0, 1) of a position of a stream: a pure
// function, so that recomputing, splitting or moving work never changes it.
// Backends must give exactly these 24 bits.
func Uniform(key uint64, stream uint32, position uint64) float32 {
	return float32(mix(mix(key^uint64(stream)*0x9e3779b97f4a7c15)+position)>>40) * (1.0 / (1 << 24))
}

// RoundRandomly rounds to one of the two neighbouring bfloat16 numbers, up with the
// chance of how near that one is: what is added again and again in steps smaller than
// half a unit is not lost, on the average. It takes the first 16 random bits of a
// position of a stream; numbers that bfloat16 has, and those that are none, stay.
func RoundRandomly(f float32, key uint64, position uint64) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7f800000 == 0x7f800000 {
		return dtype.ToBF16(f)
	}
	return uint16((bits + uint32(mix(mix(key)+position)>>48)) >> 16)
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
