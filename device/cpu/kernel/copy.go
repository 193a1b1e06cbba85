package kernel

import (
	"sync/atomic"
	"time"

	"spillway/internal/stopwatch"
)

const (
	// copyChunk is up to how many bytes Go's copy goes through the caches, so that what is written is first read from memory.
	copyChunk = 64 << 10
	// copyPiece is how many bytes are copied one way: of so many the CPU bypasses the caches, where it can.
	copyPiece = 1 << 20
	// copyTries is how many pieces are copied the slower way before it is given up, one of copyApart pieces: the first pieces go to
	// memory that the system provides meanwhile, which says nothing of either way. A way that becomes the slower one is tried as often
	// again: another program may have had the core while its pieces were copied.
	copyTries = 32
	copyApart = 32
	// copyMemory is over about how many pieces times are averaged.
	copyMemory = 4
)

// Copy copies bytes. Large ranges go through the caches or past them, whichever was faster on this computer: past them takes half
// the time on a Zen 4, whose memory then carries two bytes for each that is copied instead of three, and longer on some others.
func Copy(dst, src []byte) {
	for src = src[:len(dst)]; len(dst) >= copyPiece; dst, src = dst[copyPiece:], src[copyPiece:] {
		past := copies.next()
		start := stopwatch.Now()
		if past {
			copy(dst[:copyPiece], src)
		} else {
			copyChunks(dst[:copyPiece], src)
		}
		copies.took(past, stopwatch.Since(start))
	}
	copyChunks(dst, src)
}

// copyChunks copies in pieces small enough to stay in the cache.
func copyChunks(dst, src []byte) {
	for ; len(dst) > copyChunk; dst, src = dst[copyChunk:], src[copyChunk:] {
		copy(dst[:copyChunk], src)
	}
	copy(dst, src)
}

// copies remembers what pieces took each way.
var copies copyTimes

// copyTimes are of pieces through the caches and past them.
type copyTimes struct {
	pieces atomic.Uint32
	mean   [2]atomic.Int64 // nanoseconds, mostly of the last pieces; 0 for not tried. The shortest would be of one that a cache held
	slower atomic.Int32    // the way that is
	tries  atomic.Int32    // of the slower way, since it is
}

// next says whether the next piece goes past the caches: the faster way, and as long as that is tried now and then the other.
func (t *copyTimes) next() (past bool) {
	through, beyond := t.mean[0].Load(), t.mean[1].Load()
	slower := int32(0)
	if beyond > through {
		slower = 1
	}
	if t.slower.Swap(slower) != slower {
		t.tries.Store(0)
	}
	if t.tries.Load() < copyTries && t.pieces.Add(1)%copyApart == 0 {
		t.tries.Add(1)
		return slower == 1
	}
	return slower == 0
}

// took notes the time of a piece.
func (t *copyTimes) took(past bool, d time.Duration) {
	mean := &t.mean[0]
	if past {
		mean = &t.mean[1]
	}
	was := mean.Load()
	if was == 0 {
		was = int64(d)
	}
	mean.Store(max(was+(int64(d)-was)/copyMemory, 1))
}
