package cuda

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/quant"
	"spillway/shape"
)

// nominalMemory is what the maker says of an H200's memory, in bytes per second.
const nominalMemory = 4.8e12

// timed is the best time of a few launches in a row.
func timed(b *testing.B, d *Device, q device.Queue, launch func() error) time.Duration {
	b.Helper()
	const row = 5
	best := time.Hour
	for range 8 {
		best = min(best, once(b, d, q, func() error {
			for range row {
				if err := launch(); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return best / row
}

// once is the time of launches, by events.
func once(b *testing.B, d *Device, q device.Queue, launch func() error) time.Duration {
	b.Helper()
	from, _ := d.Event()
	to, _ := d.Event()
	q.Record(from)
	if err := launch(); err != nil {
		b.Fatal(err)
	}
	q.Record(to)
	if err := q.Sync(); err != nil {
		b.Fatal(err)
	}
	return to.Time() - from.Time()
}

// packedNoise is storage of n elements that decodes to small numbers.
func packedNoise(t dtype.Type, n int64) []byte {
	b := make([]byte, t.Bytes(n))
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], op.Key(uint64(i)))
	}
	scales := b[:4*ceilDiv(n, quant.StateBlock)]
	if t == quant.NF4 || t == quant.FP4 {
		scales = b[ceilDiv(n, 2)+ceilDiv(n, quant.FourBitBlock):]
	}
	for i := 0; i+4 <= len(scales); i += 4 {
		binary.LittleEndian.PutUint32(scales[i:], math.Float32bits(0.01))
	}
	return b
}

// noiseIn fills an operand of any type.
func noiseIn(t op.Type) func(at int64, chunk []byte) error {
	if !t.DType.Block() {
		return noise(t.DType)
	}
	packed := packedNoise(t.DType, t.Shape.Elements())
	return func(at int64, chunk []byte) error {
		copy(chunk, packed[at:])
		return nil
	}
}

// squares are noise without signs.
func squares(t dtype.Type) func(at int64, chunk []byte) error {
	signed, size := noise(t), int(t.Bytes(1))
	return func(at int64, chunk []byte) error {
		err := signed(at, chunk)
		for i := size - 1; i < len(chunk); i += size {
			chunk[i] &= 0x7f
		}
		return err
	}
}

// prepared fills operands of a call with noise and prepares its launch.
func prepared(b *testing.B, d *Device, q device.Queue, c op.Call) (device.Kernel, *device.Launch) {
	b.Helper()
	k, err := d.Kernel(c)
	if err != nil {
		b.Fatal(err)
	}
	l, inPlace := &device.Launch{Args: &op.Args{Scalars: optim.AdamStep{Rate: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Bias1: 0.5, Bias2: 0.7}.Scalars()}}, c.InPlace()
	fresh := func(bytes int64) device.Memory {
		m, err := d.Alloc(bytes)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { m.Free() })
		return m
	}
	for i, t := range append(c.In[:len(c.In):len(c.In)], c.Out...) {
		if o := i - len(c.In); o >= 0 && o < len(inPlace) {
			l.Buffers = append(l.Buffers, l.Buffers[inPlace[o]])
			continue
		}
		m := fresh(t.Bytes())
		l.Buffers = append(l.Buffers, device.Buffer{Memory: m, Bytes: t.Bytes()})
		fill := noiseIn(t)
		if c.Kind == optim.Adam && i == 3 && !t.DType.Block() {
			fill = squares(t.DType)
		}
		if err := filled(d, q, l.Buffers[i], fill); err != nil {
			b.Fatal(err)
		}
	}
	l.Workspace = device.Buffer{Memory: fresh(max(1, k.Workspace())), Bytes: k.Workspace()}
	return k, l
}

// filled writes memory of the GPU in parts.
func filled(d *Device, q device.Queue, to device.Buffer, fill func(at int64, chunk []byte) error) error {
	const step = 64 << 20
	host, err := d.HostAlloc(step)
	if err != nil {
		return err
	}
	defer host.Free()
	for at := int64(0); at < to.Bytes; at += step {
		n := min(step, to.Bytes-at)
		if err := fill(at, host.Host()[:n]); err != nil {
			return err
		}
		if err := q.Copy(device.Buffer{Memory: to.Memory, Offset: to.Offset + at, Bytes: n}, device.Buffer{Memory: host, Bytes: n}); err != nil {
			return err
		}
		if err := q.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// copyRate measures a large copy within the GPU, bytes read and bytes written.
func copyRate(b *testing.B, d *Device, q device.Queue) float64 {
	b.Helper()
	const size = 2 << 30
	m, err := d.Alloc(2 * size)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Free()
	took := timed(b, d, q, func() error {
		return q.Copy(device.Buffer{Memory: m, Bytes: size}, device.Buffer{Memory: m, Offset: size, Bytes: size})
	})
	return 2 * size / took.Seconds()
}

// Kernels of block formats as shares of the memory's rate: what a copy reaches in the
// same run, and what the maker says.
func BenchmarkPacked(b *testing.B) {
	big, vector := shape.Of(28672, 8192), shape.Of(1<<28)
	plain := func(t dtype.Type) op.Type { return op.Type{DType: t, Shape: vector} }
	clip := op.Type{DType: dtype.F32, Shape: shape.Of(2)}
	for name, c := range map[string]struct {
		kind op.Kind
		attr op.Attr
		in   []op.Type
	}{
		"dequantize nf4":  {op.Dequantize, op.Attr{To: dtype.BF16}, []op.Type{{DType: quant.NF4, Shape: big}}},
		"dequantize fp4":  {op.Dequantize, op.Attr{To: dtype.BF16}, []op.Type{{DType: quant.FP4, Shape: big}}},
		"1 row by nf4":    {op.QuantizedMatmul, op.Attr{}, []op.Type{{DType: dtype.BF16, Shape: shape.Of(1, 8192)}, {DType: quant.NF4, Shape: big}}},
		"8 rows by nf4":   {op.QuantizedMatmul, op.Attr{}, []op.Type{{DType: dtype.BF16, Shape: shape.Of(8, 8192)}, {DType: quant.NF4, Shape: big}}},
		"adamw f32":       {optim.Adam, op.Attr{To: dtype.BF16}, []op.Type{plain(dtype.F32), plain(dtype.BF16), plain(dtype.F32), plain(dtype.F32), clip}},
		"adamw bf16":      {optim.Adam, op.Attr{To: dtype.BF16}, []op.Type{plain(dtype.F32), plain(dtype.BF16), plain(dtype.BF16), plain(dtype.BF16), clip}},
		"adamw pure bf16": {optim.Adam, op.Attr{}, []op.Type{plain(dtype.BF16), plain(dtype.BF16), plain(dtype.BF16), plain(dtype.BF16), clip}},
		"adamw 8-bit":     {optim.Adam, op.Attr{To: dtype.BF16}, []op.Type{plain(dtype.F32), plain(dtype.BF16), plain(quant.Dyn8), plain(quant.UDyn8), clip}},
		"adamw 8-bit f32": {optim.Adam, op.Attr{}, []op.Type{plain(dtype.F32), plain(dtype.F32), plain(quant.Dyn8), plain(quant.UDyn8), clip}},
		"lion 8-bit":      {optim.Lion, op.Attr{To: dtype.BF16}, []op.Type{plain(dtype.F32), plain(dtype.BF16), plain(quant.Dyn8), clip}},
	} {
		b.Run(name, func(b *testing.B) {
			call, err := op.Make(c.kind, c.attr, c.in...)
			if err != nil {
				b.Fatal(err)
			}
			d := openGPU(b, Options{})
			b.Cleanup(func() { d.Close() })
			q, err := d.Queue("compute")
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { q.Close() })
			k, l := prepared(b, d, q, call)
			copied := copyRate(b, d, q)
			took := time.Hour
			for b.Loop() {
				took = min(took, timed(b, d, q, func() error { return q.Launch(k, l) }))
			}
			rate := float64(call.Cost().Bytes) / took.Seconds()
			b.ReportMetric(took.Seconds()*1e6, "µs/launch")
			b.ReportMetric(rate/copied, "of-copy")
			b.ReportMetric(rate/nominalMemory, "of-nominal")
		})
	}
}
