package kernel

import "spillway/op"

// RoundStates rounds each number as op.Stream.RoundState does, at positions of a stream that
// count up.
func RoundStates(dst []uint16, src []float32, s op.Stream, position uint64) {
	plain := func(from, to int) {
		for i := from; i < to; i++ {
			dst[i] = s.RoundState(src[i], position+uint64(i))
		}
	}
	head := min(int(-position%4), len(src)) // up to the first of four neighbours
	end := head + (len(src)-head)&^(2*lanesMost-1)
	plain(0, head)
	active.roundStates(dst[head:end], src[head:end], uint64(s)+(position+uint64(head))/4)
	plain(end, len(src))
}

func roundStatesGo(dst []uint16, src []float32, at uint64) {
	for i, f := range src {
		dst[i] = op.Stream(at).RoundState(f, uint64(i))
	}
}

// ToBF16Randomly rounds each number as op.RoundStochastic does, at positions of a stream
// that count up.
func ToBF16Randomly(dst []uint16, src []float32, key, position uint64) {
	at := uint64(op.NewStream(key, 0)) + position
	end := len(src) &^ (lanesMost - 1)
	active.roundWeights(dst[:end], src[:end], at)
	roundWeightsGo(dst[end:len(src)], src[end:], at+uint64(end))
}

func roundWeightsGo(dst []uint16, src []float32, at uint64) {
	for i, f := range src {
		dst[i] = op.Stream(at).RoundStochastic(f, uint64(i))
	}
}
