package cpu

import (
	"fmt"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// BenchmarkDequantize reports how many bytes are written per second beside a copy that
// writes as many.
func BenchmarkDequantize(b *testing.B) {
	const n = 16 << 20
	d := Open(Options{})
	defer d.Close()
	m, err := d.Alloc(2 * 4 * n)
	must(b, err)
	defer m.Free()
	q := openQueue(b, d)
	defer q.Close()
	rate := func(b *testing.B, bytes int64, f func() error) {
		b.SetBytes(bytes)
		for b.Loop() {
			must(b, f())
			must(b, q.Sync())
		}
	}
	for _, to := range []dtype.Type{dtype.F32, dtype.BF16} {
		bytes := to.Bytes(n)
		out := device.Buffer{Memory: m, Offset: 4 * n, Bytes: bytes}
		b.Run(fmt.Sprintf("copy/%v", to), func(b *testing.B) {
			rate(b, bytes, func() error { return q.Copy(out, device.Buffer{Memory: m, Bytes: bytes}) })
		})
		call, err := op.Make(op.Dequantize, op.Attr{To: to}, op.Type{DType: dtype.NF4, Shape: shape.Of(n)})
		must(b, err)
		k, err := d.Kernel(call)
		must(b, err)
		launch := &device.Launch{Buffers: []device.Buffer{{Memory: m, Bytes: dtype.NF4.Bytes(n)}, out}}
		b.Run(fmt.Sprintf("nf4/%v", to), func(b *testing.B) {
			rate(b, bytes, func() error { return q.Launch(k, launch) })
		})
	}
}
