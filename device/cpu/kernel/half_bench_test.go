package kernel

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"spillway/dtype"
	"spillway/internal/offheap"
	"spillway/quant"
)

// BenchmarkStreams shows how fast one core multiplies few rows by a weight in 16 bits that comes
// from memory, compared with plain reading. Times are the tenth percentile of pieces, each shorter than a core is taken away for, so that other programs disturb little.
func BenchmarkStreams(b *testing.B) {
	const n, k = 16384, 2048
	memory, err := offheap.Alloc(2*n*k, true)
	if err != nil {
		b.Fatal(err)
	}
	defer memory.Free()
	codes := unsafe.Slice((*uint16)(unsafe.Pointer(&memory.Bytes()[0])), n*k)
	for i := range codes {
		codes[i] = uint16(0x3c00 + i%100)
	}
	numbers := unsafe.Slice((*float32)(unsafe.Pointer(&codes[0])), n*k/2)
	pool := NewPool(1)
	defer pool.Close()
	for _, of := range []dtype.Type{dtype.BF16, dtype.F16} {
		for i, m := range []int{1, 2, 4, 8, 1, 2, 4, 8} {
			together := i >= 4
			b.Run(fmt.Sprintf("%v/interleaved=%v/%d", of, together, m), func(b *testing.B) {
				g := newGemm(newRand(), m, 1, k, 2)
				g.N, g.C, g.CStep = n, make([]float32, m*n), n
				g.B = Matrix{Type: of, Codes: codes, Step: k, Transposed: true, Interleaved: together}
				g.Work, g.path, g.team = make([]float32, g.Workspace(1)), active, pool.team
				job, width := Job(skinny{g}), skinny{g}.width()
				if g.isInterleaved() {
					first, groups := interleaved{g}.shares().piece(0)
					job, width = interleaved{g}, (first+groups)*quant.HalfRows
				} else if g.isStreamed() {
					job, width = streamed{g}, streamed{g}.columns()
				}
				var matmuls, reads []time.Duration
				for b.Loop() {
					for i := range n / width {
						start := time.Now()
						job.Run(0, i)
						matmuls = append(matmuls, time.Since(start))
					}
					for i := 0; i < len(numbers); i += width * k / 2 {
						start := time.Now()
						Sum(numbers[i:][:width*k/2])
						reads = append(reads, time.Since(start))
					}
				}
				rate := func(times []time.Duration) float64 {
					slices.Sort(times)
					return float64(2*width*k) / times[len(times)/10].Seconds() / 1e9
				}
				b.ReportMetric(rate(matmuls), "GB/s")
				b.ReportMetric(rate(reads), "GB/s-reading")
			})
		}
	}
}
