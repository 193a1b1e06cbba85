package rig

import (
	"runtime/debug"
	"sync"
	"time"

	"spillway/internal/stopwatch"
	"spillway/units"
)

// copyChunk is how many bytes are copied at once, so that they go through the caches: the memory then carries what kernels
// make it carry that read and write.
const copyChunk = 64 << 10

// copyRounds is how often a copy is timed; the fastest counts, since a disturbance only
// slows it down.
const copyRounds = 3

// copyRate measures how many bytes per second so many cores copy together, with n bytes in
// all.
func copyRate(n units.Bytes, cores int, copy func(to, from []byte)) units.Rate {
	part := max(int(n)/cores, copyChunk)
	from, to := make([][]byte, cores), make([][]byte, cores)
	for i := range cores {
		from[i], to[i] = make([]byte, part), make([]byte, part)
		clear(from[i]) // the first touch makes the system provide the pages
	}
	var best time.Duration
	for round := range copyRounds + 1 {
		var done sync.WaitGroup
		start := stopwatch.Now()
		for i := range to {
			done.Go(func() { copy(to[i], from[i]) })
		}
		done.Wait()
		took := max(stopwatch.Since(start), 1)
		if round > 0 && (best == 0 || took < best) { // round 0 touches the targets
			best = took
		}
	}
	from, to = nil, nil
	debug.FreeOSMemory() // the measurement must not stay in the resident set
	return units.Rate(float64(part*cores) / best.Seconds())
}

func copyChunks(to, from []byte) {
	for len(from) > 0 {
		n := min(copyChunk, len(from))
		copy(to[:n], from[:n])
		to, from = to[n:], from[n:]
	}
}
