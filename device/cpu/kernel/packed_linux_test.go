package kernel

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"spillway/internal/offheap"
)

// BenchmarkPacked shows how fast one core multiplies by packed weights: GB/s of codes for one
// row, compared with plain reading, and GFLOP/s for many.
func BenchmarkPacked(b *testing.B) {
	const n, k = 16384, 2048
	pool := NewPool(1)
	defer pool.Close()
	for _, kind := range slices.Concat(packedTypes, tableTypes[:1]) {
		memory, err := offheap.Alloc(kind.Bytes(n*k), true)
		if err != nil {
			b.Fatal(err)
		}
		defer memory.Free()
		small, _ := newPacked(b, newRand(), kind, 1, 64, k)
		for at := 0; at < len(memory.Bytes()); at += len(small.W) {
			copy(memory.Bytes()[at:], small.W)
		}
		numbers := unsafe.Slice((*float32)(unsafe.Pointer(&memory.Bytes()[0])), len(memory.Bytes())/4)
		for _, m := range []int{1, 2, 8, 512} {
			b.Run(fmt.Sprintf("%v/%d", kind, m), func(b *testing.B) {
				g := &Packed{M: m, N: n, K: k, Format: PackedFormatOf(kind), X: random(newRand(), m*k), W: memory.Bytes(), C: make([]float32, m*n)}
				if m > 8 {
					g.N = 1024
				}
				g.Work = make([]float32, g.Workspace(1))
				best, read := math.Inf(1), math.Inf(1)
				for b.Loop() {
					start := cpuSeconds()
					g.Run(pool)
					best = min(best, cpuSeconds()-start)
					start = cpuSeconds()
					Sum(numbers)
					read = min(read, cpuSeconds()-start)
				}
				b.ReportMetric(float64(kind.Bytes(int64(g.N*k)))/best/1e9, "GB/s")
				b.ReportMetric(float64(len(memory.Bytes()))/read/1e9, "GB/s-reading")
				b.ReportMetric(2*float64(g.M*g.N)*k/best/1e9, "GFLOP/s")
			})
		}
	}
}

// cpuSeconds is the time that the process has had of the cores, so that other programs disturb
// little.
func cpuSeconds() float64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return float64(time.Now().UnixNano()) / 1e9
	}
	return float64(t.Nano()) / 1e9
}
