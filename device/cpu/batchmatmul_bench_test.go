package cpu

import (
	"fmt"
	"math"
	"testing"
	"time"

	"spillway/op"
)

// BenchmarkBatchMatMul prints the best time of many small matmuls, in microseconds. PyTorch has torch.bmm for the same.
func BenchmarkBatchMatMul(b *testing.B) {
	for _, s := range [][4]int{{4096, 16, 16, 16}, {4096, 16, 8, 16}, {4096, 16, 24, 16}, {4096, 16, 48, 16}, {4096, 8, 8, 8}, {4096, 24, 24, 24}, {4096, 48, 48, 48}, {4096, 32, 32, 32}, {1024, 64, 64, 64}, {4096, 1, 64, 64}} {
		b.Run(fmt.Sprint(s), func(b *testing.B) {
			call, err := op.Make(op.BatchMatMul, op.Attr{}, sized([]int{s[0], s[1], s[3]}), sized([]int{s[0], s[3], s[2]}))
			must(b, err)
			m := newBench(b, 1<<30)
			p := m.prepare(b, call.Kind, call.Attr, call.In, m.take(call.In[0].Bytes()), m.take(call.In[1].Bytes()))
			copy(F32(p.launch, 0), spread(call.In[0].Shape.Elements(), 1))
			copy(F32(p.launch, 1), spread(call.In[1].Shape.Elements(), 2))
			best := math.Inf(1)
			for range max(b.N, 200) {
				start := time.Now()
				m.run(b, p)
				best = min(best, time.Since(start).Seconds()*1e6)
			}
			b.ReportMetric(best, "us")
		})
	}
}
