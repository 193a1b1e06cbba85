package kernel

import (
	"bytes"
	"testing"
	"time"
)

// Both ways of copying give the bytes, of any length.
func TestCopy(t *testing.T) {
	defer func() { copies = copyTimes{} }()
	from := make([]byte, 2*copyPiece+copyChunk+17)
	for i := range from {
		from[i] = byte(i*7 + i>>11)
	}
	to := make([]byte, len(from))
	for _, faster := range []int{0, 1} {
		copies = copyTimes{}
		copies.mean[faster].Store(1)
		copies.mean[1-faster].Store(2)
		for _, n := range []int{0, 1, copyChunk, copyChunk + 1, copyPiece - 1, copyPiece, copyPiece + 5, len(from)} {
			clear(to)
			if Copy(to[:n], from); !bytes.Equal(to[:n], from[:n]) || n < len(to) && to[n] != 0 {
				t.Errorf("%d bytes were not copied as they are, or some behind them were", n)
			}
		}
	}
}

// The faster way is taken, and the other is tried now and then until that is no longer worth it.
func TestCopyTakesTheFasterWay(t *testing.T) {
	for faster, times := range [][2]time.Duration{{2, 5}, {5, 2}} {
		var c copyTimes
		taken := [2]int{}
		for range 2 * copyTries * copyApart {
			way := 0
			if c.next() {
				way = 1
			}
			taken[way]++
			c.took(way == 1, times[way])
		}
		if n := taken[1-faster]; n < copyTries || n > copyTries+1 {
			t.Errorf("of ways that take %v the slower one was taken %d times, want %d", times, n, copyTries)
		}
	}
}

// BenchmarkCopy compares the ways with each other.
func BenchmarkCopy(b *testing.B) {
	from, to := make([]byte, 128<<20), make([]byte, 128<<20)
	for i := range from {
		from[i] = byte(i) // an untouched source is one page of zeros in the cache
	}
	copy(to, from) // the first touch of a page is no part of a copy
	for _, way := range []struct {
		name string
		do   func(dst, src []byte)
	}{{"chosen", Copy}, {"through", copyChunks}, {"past", func(dst, src []byte) { copy(dst, src) }}} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(len(from)))
			for b.Loop() {
				way.do(to, from)
			}
		})
	}
}
