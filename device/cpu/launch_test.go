package cpu

import (
	"fmt"
	"math"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// BenchmarkLaunch shows what small ops cost, as a step of decoding has them: many launches, then
// one wait.
func BenchmarkLaunch(b *testing.B) {
	for _, of := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, size := range [][2]int{{64, 64}, {288, 288}, {768, 768}} {
			for _, kind := range []op.Kind{op.RMSNorm, op.MatMul} {
				b.Run(fmt.Sprintf("%v/%v/%d", of, kind, size[0]), func(b *testing.B) {
					m := newBench(b, 16<<20)
					x, w := op.Type{DType: of, Shape: shape.Of(1, size[0])}, op.Type{DType: of, Shape: shape.Of(size[0])}
					attr := op.Attr{Eps: 1e-5}
					if kind == op.MatMul {
						w.Shape, attr = shape.Of(size[1], size[0]), op.Attr{TransB: true}
					}
					in := []device.Buffer{m.take(x.Bytes()), m.take(w.Bytes())}
					list := make([]prepared, 100)
					for i := range list {
						list[i] = m.prepare(b, kind, attr, []op.Type{x, w}, in...)
					}
					best := time.Duration(math.MaxInt64)
					for b.Loop() {
						start := time.Now()
						m.run(b, list...)
						best = min(best, time.Since(start))
					}
					b.ReportMetric(float64(best.Nanoseconds())/float64(len(list)), "ns-best-each")
				})
			}
		}
	}
}
