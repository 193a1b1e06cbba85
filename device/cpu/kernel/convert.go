package kernel

import (
	"spillway/dtype"
	"spillway/op"
)

// lanesMost is the largest number of lanes of a path: conversions and sums of
// squares are done in assembly up to a multiple of it, the rest in plain Go.
const lanesMost = 16

// FromBF16 widens bfloat16 numbers.
func FromBF16(dst []float32, src []uint16) { widen(dst, src, active.fromBF16, fromBF16Go) }

// FromF16 widens IEEE half-precision numbers.
func FromF16(dst []float32, src []uint16) { widen(dst, src, active.fromF16, fromF16Go) }

// ToBF16 rounds to the nearest bfloat16, ties to even.
func ToBF16(dst []uint16, src []float32) { narrow(dst, src, active.toBF16, toBF16Go) }

// ToF16 rounds to the nearest half, ties to even.
func ToF16(dst []uint16, src []float32) { narrow(dst, src, active.toF16, toF16Go) }

func widen(dst []float32, src []uint16, fast, rest func([]float32, []uint16)) {
	n := len(dst) &^ (lanesMost - 1)
	fast(dst[:n], src[:n])
	rest(dst[n:], src[n:len(dst)])
}

func narrow(dst []uint16, src []float32, fast, rest func([]uint16, []float32)) {
	n := len(dst) &^ (lanesMost - 1)
	fast(dst[:n], src[:n])
	rest(dst[n:], src[n:len(dst)])
}

func fromBF16Go(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = dtype.FromBF16(v)
	}
}

func fromF16Go(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = dtype.FromF16(v)
	}
}

func toBF16Go(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = dtype.ToBF16(v)
	}
}

func toF16Go(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = dtype.ToF16(v)
	}
}

// ToBF16Randomly rounds each number as op.RoundRandomly does, at positions of a stream
// that count up.
func ToBF16Randomly(dst []uint16, src []float32, key, position uint64) {
	for i, f := range src {
		dst[i] = op.RoundRandomly(f, key, position+uint64(i))
	}
}
