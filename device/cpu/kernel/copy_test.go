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

// A core that another program has for some pieces makes a way look slow. The faster way is found again soon, however often that happens.
func TestCopyFindsTheFasterWayAgain(t *testing.T) {
	for faster, times := range [][2]time.Duration{{50, 120}, {120, 50}} {
		var c copyTimes
		copied := func(pieces int, slowed time.Duration) (taken int) {
			for range pieces {
				past := c.next()
				d := times[0]
				if past {
					d = times[1]
				}
				if past == (faster == 1) {
					d += slowed
					taken++
				}
				c.took(past, d)
			}
			return taken
		}
		for disturbed := range 10 {
			copied(2*copyTries*copyApart, 0)
			if n := copied(100, 0); n < 95 {
				t.Errorf("of ways that take %v, disturbed %d times, the faster one is taken for %d of 100 pieces", times, disturbed, n)
			}
			copied(20, 5000)
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
