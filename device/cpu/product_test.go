package cpu

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
	"spillway/safetensors"
	"spillway/shape"
)

// bench is memory for operands, one behind the other, and a queue.
type bench struct {
	d  *Device
	q  device.Queue
	m  device.Memory
	at int64
}

func newBench(t testing.TB, bytes int64) *bench {
	t.Helper()
	d := Open(Options{})
	m, err := d.Alloc(bytes)
	must(t, err)
	q := openQueue(t, d)
	t.Cleanup(func() {
		must(t, q.Close())
		must(t, m.Free())
		must(t, d.Close())
	})
	return &bench{d: d, q: q, m: m}
}

func (b *bench) take(n int64) device.Buffer {
	at := b.at
	b.at += (n + alignment - 1) / alignment * alignment
	return device.Buffer{Memory: b.m, Offset: at, Bytes: n}
}

// prepared is a call with its kernel and a place for its scratch memory and output.
type prepared struct {
	kernel device.Kernel
	launch *device.Launch
	out    device.Buffer
}

func (b *bench) prepare(t testing.TB, kind op.Kind, a op.Attr, types []op.Type, in ...device.Buffer) prepared {
	t.Helper()
	call, err := op.Make(kind, a, types...)
	must(t, err)
	k, err := b.d.Kernel(call)
	must(t, err)
	out := b.take(call.Out[0].Bytes())
	return prepared{k, &device.Launch{Buffers: append(in, out), Workspace: b.take(k.Workspace())}, out}
}

func (b *bench) run(t testing.TB, list ...prepared) {
	t.Helper()
	for _, p := range list {
		must(t, b.q.Launch(p.kernel, p.launch))
	}
	must(t, b.q.Sync())
}

// decodeThenMultiply is the two calls that a quantized matmul stands for.
func (b *bench) decodeThenMultiply(t testing.TB, x, w op.Type, at, weight device.Buffer) []prepared {
	decode := b.prepare(t, op.Dequantize, op.Attr{To: dtype.F32}, []op.Type{w}, weight)
	plain := op.Type{DType: dtype.F32, Shape: w.Shape}
	return []prepared{decode, b.prepare(t, op.MatMul, op.Attr{TransB: true}, []op.Type{x, plain}, at, decode.out)}
}

// fill gives operands numbers.
func fill(t testing.TB, into device.Buffer, typ op.Type, seed int) {
	t.Helper()
	a := op.NewArray(typ)
	for i := range a.F {
		a.F[i] = math.Sin(float64(i*7 + seed))
	}
	raw, err := a.Encode()
	must(t, err)
	copy(into.Host(), raw)
}

// A quantized matmul has the bits of decoding and multiplying.
func TestQuantizedMatmulsHaveTheBitsOfTwoSteps(t *testing.T) {
	for _, kind := range []dtype.Type{quant.NF4, quant.FP4, quant.RowI8, quant.RowF8} {
		for _, s := range [][3]int{{1, 64, 640}, {3, 300, 1100}, {48, 65, 43}, {49, 1030, 70}, {200, 1100, 600}} {
			b := newBench(t, 64<<20)
			x, w := op.Type{DType: dtype.F32, Shape: shape.Of(s[0], s[2])}, op.Type{DType: kind, Shape: shape.Of(s[1], s[2])}
			at, weight := b.take(x.Bytes()), b.take(w.Bytes())
			fill(t, at, x, 1)
			fill(t, weight, w, 2)
			steps := b.decodeThenMultiply(t, x, w, at, weight)
			fused := b.prepare(t, op.QuantizedMatmul, op.Attr{}, []op.Type{x, w}, at, weight)
			b.run(t, append(steps, fused)...)
			if !bytes.Equal(fused.out.Host(), steps[1].out.Host()) {
				t.Errorf("%v of %v has other bits than decoding first", s, kind)
			}
		}
	}
}

// A matmul with an interleaved 16-bit weight has the bits of one with the weight as it is. With
// interleaved codes inputs in bf16 give what the decoded weight gives, but for their rounding to
// integers; in f32 they give its bits.
func TestInterleavedMatmuls(t *testing.T) {
	for _, kind := range []dtype.Type{quant.BF16x32, quant.CompressedBF16, quant.F16x32, quant.Q4_0x16, quant.Q8_0x16, quant.Q4_Kx16, quant.Q6_Kx16, quant.NF4x16, quant.FP4x16} {
		for _, in := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
			for _, s := range [][3]int{{1, 64, 512}, {3, 24, 256}, {3, 96, 256}, {50, 40, 768}, {50, 96, 768}} {
				if _, fits := quant.Interleaved(quant.InterleavedOf(kind), int64(s[1]), int64(s[2])); !fits || kind == quant.CompressedBF16 && !quant.CompressedShape(int64(s[1]), int64(s[2])) {
					continue
				}
				b := newBench(t, 64<<20)
				x, w := op.Type{DType: in, Shape: shape.Of(s[0], s[2])}, op.Type{DType: kind, Shape: shape.Of(s[1], s[2])}
				at, weight := b.take(x.Bytes()), b.take(w.Bytes())
				fill(t, at, x, 1)
				fill(t, weight, w, 2)
				wide := op.Type{DType: dtype.F32, Shape: x.Shape}
				numbers := b.take(wide.Bytes())
				in.Decode(view[float32](numbers), at.Host())
				fused := b.prepare(t, op.QuantizedMatmul, op.Attr{}, []op.Type{x, w}, at, weight)
				steps := b.decodeThenMultiply(t, wide, w, numbers, weight)
				b.run(t, append(steps, fused)...)
				plain := make([]byte, fused.out.Bytes)
				in.Encode(plain, view[float32](steps[1].out))
				if in == dtype.F32 || quant.InterleavedOf(kind).IsPlain() {
					if !bytes.Equal(fused.out.Host(), plain) {
						t.Errorf("%v of %v with inputs in %v has other bits than decoding first", s, kind, in)
					}
					continue
				}
				rounding := 1e-5
				if kind == quant.NF4x16 { // of which the values are rounded too
					rounding = 1e-4
				}
				got, want := make([]float32, s[0]*s[1]), make([]float32, s[0]*s[1])
				in.Decode(got, fused.out.Host())
				in.Decode(want, plain)
				for i, f := range want { // one step of the output's type, or the rounding of inputs
					if off := math.Abs(float64(got[i] - f)); off > math.Abs(float64(f))/128+float64(s[2])*rounding {
						t.Fatalf("%v of %v with inputs in %v: element %d is %v, want %v", s, kind, in, i, got[i], f)
					}
				}
			}
		}
	}
}

// Matmuls with outliers are those of bitsandbytes, which rounds its results to f16; see
// tools/reference/quant.py.
func TestOutliersAreBitsandbytes(t *testing.T) {
	f, err := safetensors.Open(filepath.Join("testdata", "outliers.safetensors"))
	must(t, err)
	defer f.Close()
	read := func(name string) []byte {
		x, ok := f.Tensor(name)
		if !ok {
			t.Fatalf("there is no %s", name)
		}
		raw := make([]byte, x.Bytes)
		_, err := x.ReadAt(raw, 0)
		must(t, err)
		return raw
	}
	input, _ := f.Tensor("x")
	codes, _ := f.Tensor("codes")
	x, w := op.Type{DType: dtype.F32, Shape: input.Shape}, op.Type{DType: quant.RowI8, Shape: codes.Shape}
	bias := op.Type{DType: dtype.F32, Shape: shape.Shape{codes.Shape[0]}}
	b := newBench(t, 1<<20)
	at, weight, biases := b.take(x.Bytes()), b.take(w.Bytes()), b.take(bias.Bytes())
	copy(at.Host(), read("x"))
	copy(weight.Host(), append(read("codes"), read("scales")...))
	copy(biases.Host(), read("bias"))
	p := b.prepare(t, op.QuantizedMatmul, op.Attr{OutlierThreshold: 6, Bias: true}, []op.Type{x, w, bias}, at, weight, biases)
	b.run(t, p)
	got, want := make([]float32, p.out.Bytes/4), make([]float32, p.out.Bytes/4)
	dtype.F32.Decode(got, p.out.Host())
	dtype.F32.Decode(want, read("y"))
	var off, most float64
	for i, f := range want {
		off, most = max(off, math.Abs(float64(got[i]-f))), max(most, math.Abs(float64(f)))
	}
	if off > most/1024 || most == 0 {
		t.Errorf("off by %v of %v, f16 rounds by %v", off, most, most/2048)
	}
}

// BenchmarkQuantizedMatmul compares with decoding first and multiplying then, of which the
// decoded weight goes through memory: the best time of one over the best of the other,
// taken in turns.
func BenchmarkQuantizedMatmul(b *testing.B) {
	const out, in = 4096, 4096
	for _, kind := range []dtype.Type{quant.NF4, quant.RowI8, quant.RowF8} {
		for _, rows := range []int{1, 8, 512} {
			b.Run(fmt.Sprintf("%v/%d rows", kind, rows), func(b *testing.B) {
				m := newBench(b, 256<<20)
				x, w := op.Type{DType: dtype.F32, Shape: shape.Of(rows, in)}, op.Type{DType: kind, Shape: shape.Of(out, in)}
				at, weight := m.take(x.Bytes()), m.take(w.Bytes())
				steps := m.decodeThenMultiply(b, x, w, at, weight)
				fused := m.prepare(b, op.QuantizedMatmul, op.Attr{}, []op.Type{x, w}, at, weight)
				one, two := time.Duration(1<<62), time.Duration(1<<62)
				for b.Loop() {
					start := time.Now()
					m.run(b, steps...)
					two = min(two, time.Since(start))
					start = time.Now()
					m.run(b, fused)
					one = min(one, time.Since(start))
				}
				b.ReportMetric(two.Seconds()/one.Seconds(), "of-two-steps")
				b.ReportMetric(float64(w.Bytes())/one.Seconds()/1e9, "GB/s-coded")
			})
		}
	}
}
