package cpu

import (
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// BenchmarkDequantize compares with a copy that writes as many bytes: the best time of
// one over the best time of the other, taken in turns.
func BenchmarkDequantize(b *testing.B) {
	const n = 16 << 20
	d := Open(Options{})
	defer d.Close()
	m, err := d.Alloc(2 * 4 * n)
	must(b, err)
	defer m.Free()
	q := openQueue(b, d)
	defer q.Close()
	for _, to := range []dtype.Type{dtype.F32, dtype.BF16} {
		call, err := op.Make(op.Dequantize, op.Attr{To: to}, op.Type{DType: quant.NF4, Shape: shape.Of(n)})
		must(b, err)
		k, err := d.Kernel(call)
		must(b, err)
		out := device.Buffer{Memory: m, Offset: 4 * n, Bytes: to.Bytes(n)}
		launch := &device.Launch{Buffers: []device.Buffer{{Memory: m, Bytes: quant.NF4.Bytes(n)}, out}}
		b.Run(to.String(), func(b *testing.B) {
			copied, decoded := time.Duration(1<<62), time.Duration(1<<62)
			for b.Loop() {
				copied = min(copied, elapsed(b, q, func() error { return q.Copy(out, device.Buffer{Memory: m, Bytes: out.Bytes}) }))
				decoded = min(decoded, elapsed(b, q, func() error { return q.Launch(k, launch) }))
			}
			b.ReportMetric(copied.Seconds()/decoded.Seconds(), "of-copy")
			b.ReportMetric(float64(out.Bytes)/decoded.Seconds()/1e9, "GB/s-written")
		})
	}
}

func elapsed(b *testing.B, q device.Queue, f func() error) time.Duration {
	start := time.Now()
	must(b, f())
	must(b, q.Sync())
	return time.Since(start)
}
