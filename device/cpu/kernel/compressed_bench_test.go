package kernel

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"
	"unsafe"

	"spillway/dtype"
	"spillway/internal/offheap"
	"spillway/quant"
)

// cyclic reads as some bytes again and again.
type cyclic []byte

func (c cyclic) ReadAt(p []byte, off int64) (int, error) {
	for i := 0; i < len(p); {
		i += copy(p[i:], c[(off+int64(i))%int64(len(c)):])
	}
	return len(p), nil
}

// BenchmarkCompressed shows how fast few rows are multiplied by a weight that comes from memory, in bf16 with rows together and compressed, in
// turns, on one core and on two. Weights are normal numbers. Times are the tenth percentile, which other programs disturb little.
func BenchmarkCompressed(b *testing.B) {
	const n, k = 65536, 2048
	rng := newRand()
	some := make(cyclic, 2<<20)
	for i := range len(some) / 2 {
		binary.LittleEndian.PutUint16(some[2*i:], dtype.ToBF16(float32(rng.NormFloat64()*0.02)))
	}
	stored := func(of dtype.Type) []byte {
		memory, err := offheap.Alloc(of.Bytes(n*k), true)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = memory.Free() })
		if _, err := io.ReadFull(quant.Interleave(of, n, k, some), memory.Bytes()); err != nil {
			b.Fatal(err)
		}
		return memory.Bytes()
	}
	plain, packed := stored(quant.BF16x32), stored(quant.CompressedBF16)
	for _, workers := range []int{1, 2} {
		pool := NewPool(workers)
		for _, m := range []int{1, 2, 4, 8, 16, 48} {
			for _, inputs := range []string{"bf16", "f32"} {
				b.Run(fmt.Sprintf("%d cores/%s/%d", workers, inputs, m), func(b *testing.B) {
					weight := Matrix{Type: dtype.BF16, Step: k, Transposed: true, Interleaved: true, Codes: unsafe.Slice((*uint16)(unsafe.Pointer(&plain[0])), n*k)}
					small, parts := weight, quant.ViewCompressed(n*k, packed)
					small.Codes, small.Compressed = nil, &parts
					times := [2][]time.Duration{}
					runs := [2]func(){multiplies(m, n, k, inputs, weight, pool), multiplies(m, n, k, inputs, small, pool)}
					for b.Loop() {
						for i, run := range runs {
							start := time.Now()
							run()
							times[i] = append(times[i], time.Since(start))
						}
					}
					for i, of := range []dtype.Type{quant.BF16x32, quant.CompressedBF16} {
						slices.Sort(times[i])
						took := times[i][len(times[i])/10].Seconds()
						b.ReportMetric(float64(of.Bytes(n*k))/took/1e9, fmt.Sprintf("GB/s-%v", of))
						b.ReportMetric(n*k/took/1e9, fmt.Sprintf("Gweights/s-%v", of))
					}
				})
			}
		}
		pool.Close()
	}
}

// multiplies runs a matmul of m rows in bf16 or f32 by a weight.
func multiplies(m, n, k int, inputs string, weight Matrix, pool *Pool) func() {
	if inputs == "f32" {
		g := &Gemm{M: m, N: n, K: k, A: Matrix{Step: k, Data: make([]float32, m*k)}, B: weight, C: make([]float32, m*n), CStep: n}
		g.path = active
		g.Work = make([]float32, g.Workspace(pool.Workers()))
		return func() { g.Run(pool) }
	}
	p := &Pairs{M: m, N: n, K: k, A: Matrix{Step: k, Codes: make([]uint16, m*k)}, B: weight, C: make([]uint16, m*n)}
	p.Work = make([]float32, p.Workspace(pool.Workers()))
	return func() { p.Run(pool) }
}
