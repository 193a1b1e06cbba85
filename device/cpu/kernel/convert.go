package kernel

import "spillway/op"

// ToBF16Randomly rounds each number as op.RoundStochastic does, at positions of a stream
// that count up.
func ToBF16Randomly(dst []uint16, src []float32, key, position uint64) {
	s := op.NewStream(key, 0)
	for i, f := range src {
		dst[i] = s.RoundStochastic(f, position+uint64(i))
	}
}
