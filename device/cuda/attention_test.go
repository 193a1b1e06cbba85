package cuda

import (
	"fmt"
	"sync"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/numtest"
	"spillway/op"
	"spillway/shape"
)

// attentionCalls are calls flash.cu takes, with tiles that are whole, cut and empty.
func attentionCalls(t testing.TB, precision dtype.Type) (calls []op.Call) {
	t.Helper()
	ids, numbers := dtype.I32, dtype.F32
	for _, c := range []struct {
		b, t, s, d int64
		attr       op.Attr
	}{
		{2, 200, 200, 64, op.Attr{Heads: 4, KVHeads: 2, Causal: true}},
		{1, 256, 256, 128, op.Attr{Heads: 2, KVHeads: 2, Causal: true}},
		{2, 65, 300, 128, op.Attr{Heads: 4, KVHeads: 1}},
		{1, 130, 300, 32, op.Attr{Heads: 3, KVHeads: 3, Causal: true, Window: 70}},
		{2, 190, 190, 64, op.Attr{Heads: 4, KVHeads: 4, Causal: true, Segments: true, Prob: 0.2, Stream: 3}},
		{2, 100, 140, 96, op.Attr{Heads: 2, KVHeads: 2, KeyMask: true, Mask: true}},
		{1, 1200, 1200, 64, op.Attr{Heads: 2, KVHeads: 1, Causal: true, Segments: true}}, // tiles of one document, of two, and apart
	} {
		c.attr.Scale = 0.125
		rows := func(heads, n int64) op.Type {
			return op.Type{DType: precision, Shape: shape.Shape{c.b, n, heads * c.d}}
		}
		in := []op.Type{rows(c.attr.Heads, c.t), rows(c.attr.KVHeads, c.s), rows(c.attr.KVHeads, c.s)}
		if c.attr.Segments {
			in = append(in, op.Type{DType: ids, Shape: shape.Shape{c.b, c.s}})
		}
		if c.attr.KeyMask {
			in = append(in, op.Type{DType: ids, Shape: shape.Shape{c.b, c.s}})
		}
		if c.attr.Mask {
			in = append(in, op.Type{DType: numbers, Shape: shape.Shape{c.t, c.s}})
		}
		call, err := op.Make(op.Attention, c.attr, in...)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	return calls
}

// operandsOf fills operands: numbers in [-1, 1), segments and masks of stretches, which
// are longer in longer samples.
func operandsOf(types []op.Type) (list []op.Array) {
	for i, t := range types {
		a := op.NewArray(t)
		numtest.Fill(a, uint64(i+1))
		a.Round()
		for k := range a.I {
			a.I[k] = int32(k / max(37, len(a.I)/8) % 3)
		}
		list = append(list, a)
	}
	return list
}

// runProgram runs a program of a call on operands and returns its outputs.
func runProgram(t testing.TB, d *Device, c op.Call, p program, in []op.Array) (out []op.Array) {
	t.Helper()
	return runProgramWith(t, d, c, p, in, op.Args{Key: 7, Row: 2})
}

// runProgramWith is the same with the numbers of an iteration. Outputs that are operands are where these are.
func runProgramWith(t testing.TB, d *Device, c op.Call, p program, in []op.Array, args op.Args) (out []op.Array) {
	t.Helper()
	types := append(c.In[:len(c.In):len(c.In)], c.Out...)
	offsets, size := make([]int64, len(types)), int64(0)
	for i, typ := range types {
		offsets[i], size = size, size+aligned(typ.Bytes())
	}
	for i, operand := range c.InPlace() {
		if operand >= 0 {
			offsets[len(c.In)+i] = offsets[operand]
		}
	}
	total := size + p.workspace
	host, err := d.HostAlloc(total)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Free()
	gpu, err := d.Alloc(total)
	if err != nil {
		t.Fatal(err)
	}
	defer gpu.Free()
	q, err := d.Queue("compute")
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for i := range host.Host() {
		host.Host()[i] = 0xff
	}
	l := &device.Launch{Args: &args, Workspace: device.Buffer{Memory: gpu, Offset: size, Bytes: p.workspace}}
	for i, typ := range types {
		if i < len(in) {
			raw, err := in[i].Encode()
			if err != nil {
				t.Fatal(err)
			}
			copy(host.Host()[offsets[i]:], raw)
		}
		l.Buffers = append(l.Buffers, device.Buffer{Memory: gpu, Offset: offsets[i], Bytes: typ.Bytes()})
	}
	whole := func(m device.Memory) device.Buffer { return device.Buffer{Memory: m, Bytes: total} }
	for _, err := range []error{q.Copy(whole(gpu), whole(host)), q.Launch(&preparedKernel{device: d, call: c, program: p}, l), q.Copy(whole(host), whole(gpu)), q.Sync()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, typ := range c.Out {
		at := offsets[len(c.In)+i]
		a, err := op.Decode(typ, host.Host()[at:at+typ.Bytes()])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// The kernels on tensor cores give what the plain ones give, forward and backward, with
// as many keys at a time as GPUs with much and with little shared memory take.
func TestFlashIsPlain(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	ways := []struct {
		precision dtype.Type
		keys      int64
	}{{dtype.BF16, 64}, {dtype.BF16, 32}, {dtype.F32, 32}}
	var compiling sync.WaitGroup
	for _, by := range ways {
		for _, c := range attentionCalls(t, by.precision) {
			h := headsOf(c, 3)
			for _, u := range []unit{h.plain().unit, h.flash(by.keys).unit, h.flash(by.keys).gradient} {
				compiling.Go(func() { _, _ = d.imageOf(u) }) // side by side; errors come out again below
			}
		}
	}
	compiling.Wait()
	for _, by := range ways {
		for i, c := range attentionCalls(t, by.precision) {
			t.Run(fmt.Sprintf("%v by %d, case %d", by.precision, by.keys, i), func(t *testing.T) { checkFlash(t, d, c, by.keys) })
		}
	}
}

func checkFlash(t *testing.T, d *Device, c op.Call, keys int64) {
	in, h := operandsOf(c.In), headsOf(c, 3)
	forward := func(by tiling) []op.Array {
		p, err := h.forward(d, by)
		if err != nil {
			t.Fatal(err)
		}
		return runProgram(t, d, c, p, in)
	}
	want := forward(h.plain())
	sameNumbers(t, "forward", forward(h.flash(keys)), want)

	grad := gradOf(c)
	operands := append([]op.Array{in[0], in[1], in[2], want[0], want[1], numtest.Random(c.In[0], 9)}, in[3:]...)
	back := headsOf(grad, 6)
	backward := func(by tiling) []op.Array {
		p, err := back.gradient(d, by)
		if err != nil {
			t.Fatal(err)
		}
		return runProgram(t, d, grad, p, operands)
	}
	sameNumbers(t, "gradient", backward(back.flash(keys)), backward(back.plain()))
}

// sameNumbers allows for weights rounded to bf16, and to tf32 where elements are wider.
func sameNumbers(t *testing.T, what string, got, want []op.Array) {
	t.Helper()
	most, square := 1.6e-2, 2e-5
	if got[0].Type.DType != dtype.BF16 {
		most, square = 4e-3, 1.3e-6
	}
	for i := range want {
		if d := numtest.Compare(got[i].F, want[i].F); !(d.Max < most && d.NMSE < square) {
			t.Errorf("%s: output %d is off by %v", what, i, d)
		}
	}
}

// Which tiling a call gets follows from the call, the device's precision and the GPU's
// shared memory.
func TestTilings(t *testing.T) {
	const h200, rtx4090 = 227 << 10, 99 << 10
	for _, c := range []struct {
		precision dtype.Type
		width     int64
		tf32      bool
		shared    int
		file      string
		keys      int64
	}{
		{dtype.BF16, 128, false, h200, "flash", 64},
		{dtype.BF16, 128, false, rtx4090, "flash", 32},
		{dtype.BF16, 64, false, rtx4090, "flash", 64},
		{dtype.BF16, 72, false, h200, "attention", 0},
		{dtype.F32, 128, false, h200, "attention", 0},
		{dtype.F32, 128, true, h200, "flash", 32},
		{dtype.F32, 64, true, rtx4090, "attention", 0}, // 2 × 128 rows of the gradient's keys do not fit
		{dtype.F32, 128, true, rtx4090, "attention", 0},
	} {
		d := &Device{options: Options{TF32: c.tf32}, gpu: gpuInfo{shared: c.shared}}
		u := headsOf(attentionCall(t, c.precision, 1, 256, c.width, op.Attr{Heads: 4, KVHeads: 2, Causal: true}), 3).chooseTiling(d).unit
		if u.file != c.file || u.keys != c.keys {
			t.Errorf("%+v: %s by %d keys", c, u.file, u.keys)
		}
	}
}
