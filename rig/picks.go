package rig

import (
	"sync"
	"time"

	"spillway/dtype"
	"spillway/internal/stopwatch"
)

// picked holds what Picks has measured, by type.
var picked sync.Map

// Picks is how many logits of a type a core of this computer decodes and compares in a second: what picking the most likely
// token takes on the host. It is measured once, in less than a millisecond.
func Picks(t dtype.Type) float64 {
	if known, ok := picked.Load(t); ok {
		return known.(float64)
	}
	const logits = 1 << 15
	raw, wide := make([]byte, t.Bytes(logits)), make([]float32, logits)
	rows := make([]time.Duration, typicalTries)
	for i := range rows {
		start := stopwatch.Now()
		t.Decode(wide, raw)
		largest(wide)
		rows[i] = max(stopwatch.Since(start), 1)
	}
	rate := logits / middle(rows).Seconds()
	picked.Store(t, rate)
	return rate
}

// largest is the index of the largest number, and -1 where one is none.
//
//go:noinline
func largest(list []float32) int {
	best := 0
	for i, n := range list {
		if n > list[best] {
			best = i
		} else if n != n {
			return -1
		}
	}
	return best
}
