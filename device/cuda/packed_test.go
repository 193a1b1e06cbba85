package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/quant"
	"spillway/shape"
)

// launched runs a call on operands given as bytes, which begin at odd elements if
// shifted, and returns what all its buffers hold then.
func launched(t testing.TB, d device.Device, c op.Call, args op.Args, shift int64, operands ...[]byte) (after [][]byte) {
	t.Helper()
	k, err := d.Kernel(c)
	if err != nil {
		t.Fatal(err)
	}
	var l device.Launch
	var size int64
	place := func(typ op.Type) {
		l.Buffers = append(l.Buffers, device.Buffer{Offset: size + shift*typ.Align(), Bytes: typ.Bytes()})
		size += aligned(typ.Bytes() + 16)
	}
	for _, typ := range c.In {
		place(typ)
	}
	inPlace := c.InPlace()
	for i, typ := range c.Out {
		if i < len(inPlace) {
			l.Buffers = append(l.Buffers, l.Buffers[inPlace[i]])
		} else {
			place(typ)
		}
	}
	l.Args = &args
	image := onBuffers(t, d, k, &l, size+k.Workspace(), operands)
	for _, b := range l.Buffers {
		after = append(after, image[b.Offset:b.Offset+b.Bytes])
	}
	return after
}

// onBuffers launches on fresh memory of a device and copies all of it back.
func onBuffers(t testing.TB, d device.Device, k device.Kernel, l *device.Launch, size int64, operands [][]byte) []byte {
	t.Helper()
	host, err := d.HostAlloc(size)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Free()
	gpu, err := d.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	defer gpu.Free()
	q, err := d.Queue("compute")
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for i := range l.Buffers {
		l.Buffers[i].Memory = gpu
		if i < len(operands) {
			copy(host.Host()[l.Buffers[i].Offset:], operands[i])
		}
	}
	l.Workspace = device.Buffer{Memory: gpu, Offset: size - k.Workspace(), Bytes: k.Workspace()}
	whole := func(m device.Memory) device.Buffer { return device.Buffer{Memory: m, Bytes: size} }
	for _, err := range []error{q.Copy(whole(gpu), whole(host)), q.Launch(k, l), q.Copy(whole(host), whole(gpu)), q.Sync()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return bytes.Clone(host.Host())
}

// spreadNumbers are of both signs and of all sizes down to 1e-9.
func spreadNumbers(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	list := make([]float32, n)
	for i := range list {
		list[i] = float32((2*r.Float64() - 1) * math.Pow(10, -9*r.Float64()*r.Float64()))
	}
	return list
}

// raw is numbers in an element type.
func raw(t testing.TB, typ dtype.Type, list []float32) []byte {
	t.Helper()
	b := make([]byte, 0, typ.Bytes(int64(len(list))))
	switch {
	case typ.Block():
		b = b[:cap(b)]
		if err := quant.Encode(typ, b, list, len(list)); err != nil {
			t.Fatal(err)
		}
	case typ == dtype.F32:
		for _, f := range list {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
	case typ == dtype.BF16:
		for _, f := range list {
			b = binary.LittleEndian.AppendUint16(b, dtype.ToBF16(f))
		}
	case typ == dtype.F16:
		for _, f := range list {
			b = binary.LittleEndian.AppendUint16(b, dtype.ToF16(f))
		}
	}
	return b
}

// The GPU decodes the bits that package quant decodes.
func TestDequantizeIsExact(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	for _, n := range []int{1, 2, 63, 64, 65, 8191, 8192, 8193, 3*16384 + 8192 + 77, 1 << 20} {
		for _, codec := range quant.Weights() {
			kind := codec.Type
			if codec.Block == 0 || n > 1<<17 && quant.FourBitOf(kind) == nil { // those are slow to encode
				continue
			}
			packed, values := raw(t, kind, spreadNumbers(n, uint64(n))), make([]float32, n)
			if err := quant.Decode(kind, values, packed, len(values)); err != nil {
				t.Fatal(err)
			}
			for _, to := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
				c, err := op.Make(op.Dequantize, op.Attr{To: to}, op.Type{DType: kind, Shape: shape.Of(n)})
				if err != nil {
					t.Fatal(err)
				}
				if got := launched(t, d, c, op.Args{}, 0, packed)[1]; !bytes.Equal(got, raw(t, to, values)) {
					t.Errorf("%d elements of %v as %v differ", n, kind, to)
				}
			}
		}
	}
}

// So it does where blocks are rows.
func TestDequantizeRowsIsExact(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	for _, dims := range [][2]int{{1, 1}, {3, 7}, {5, 64}, {77, 1024}} {
		n := dims[0] * dims[1]
		for _, kind := range []dtype.Type{quant.RowI8, quant.RowF8} {
			typ := op.Type{DType: kind, Shape: shape.Of(dims[0], dims[1])}
			packed, values := make([]byte, typ.Bytes()), make([]float32, n)
			if err := quant.Encode(kind, packed, spreadNumbers(n, uint64(n)), dims[1]); err != nil {
				t.Fatal(err)
			}
			if err := quant.Decode(kind, values, packed, dims[1]); err != nil {
				t.Fatal(err)
			}
			for _, to := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
				c, err := op.Make(op.Dequantize, op.Attr{To: to}, typ)
				if err != nil {
					t.Fatal(err)
				}
				if got := launched(t, d, c, op.Args{}, 0, packed)[1]; !bytes.Equal(got, raw(t, to, values)) {
					t.Errorf("%v as %v differs", typ, to)
				}
			}
		}
	}
}

// updateCalls are the rules that keep something, with their moments in given types.
func updateCalls(t testing.TB, n int, kept ...dtype.Type) map[string]op.Call {
	t.Helper()
	vector := func(d dtype.Type) op.Type { return op.Type{DType: d, Shape: shape.Of(n)} }
	clip := op.Type{DType: dtype.F32, Shape: shape.Of(2)}
	calls := map[string]op.Call{}
	for name, kind := range map[string]op.Kind{"adam": optim.Adam, "sgd": optim.SGD, "lion": optim.Lion} {
		in := []op.Type{vector(dtype.F32), vector(dtype.BF16), vector(kept[0]), clip}
		if kind == optim.Adam {
			in = []op.Type{in[0], in[1], in[2], vector(kept[1]), clip}
		}
		c, err := op.Make(kind, op.Attr{To: dtype.BF16}, in...)
		if err != nil {
			t.Fatal(err)
		}
		calls[name] = c
	}
	return calls
}

// A fused update on codes gives the bits of its parts: all moments decoded, a step on
// f32 moments, all coded again. It does so wherever the buffers begin.
func TestCodedUpdateIsItsParts(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	for _, second := range []dtype.Type{quant.UDyn8, dtype.F32} {
		for _, n := range []int{1, 255, 256, 257, 8*256*3 + 5, 1<<20 + 3} {
			coded, plain := updateCalls(t, n, quant.Dyn8, second), updateCalls(t, n, dtype.F32, dtype.F32)
			for name, c := range coded {
				compareWithParts(t, d, fmt.Sprintf("%s of %d elements, squares as %v", name, n, second), c, plain[name])
			}
		}
	}
}

// compareWithParts holds an update to the same one on f32 moments.
func compareWithParts(t *testing.T, d *Device, name string, coded, plain op.Call) {
	t.Helper()
	args := op.Args{Scalars: optim.AdamStep{Rate: 1e-2, Decay: 0.1, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Bias1: 0.5, Bias2: 0.7}.Scalars()}
	n := int(coded.In[0].Shape.Elements())
	w, g, clip := raw(t, dtype.F32, spreadNumbers(n, 1)), raw(t, dtype.BF16, spreadNumbers(n, 2)), raw(t, dtype.F32, []float32{0.75, 2})
	operands, wide := [][]byte{w, g}, [][]byte{w, g}
	for _, kept := range coded.In[2 : len(coded.In)-1] {
		packed, values := stateOf(t, kept.DType, n)
		operands, wide = append(operands, packed), append(wide, raw(t, dtype.F32, values))
	}
	want := launched(t, d, plain, args, 0, append(wide, clip)...)
	for shift := range int64(2) {
		got := launched(t, d, coded, args, shift, append(operands, clip)...)
		for i := len(coded.In); i < len(got); i++ {
			right := want[i]
			if k := i - len(coded.In); coded.Out[k].DType.Block() {
				right = raw(t, coded.Out[k].DType, numbersIn(right))
			}
			if !bytes.Equal(got[i], right) {
				t.Errorf("%s, shifted by %d: output %d differs from its parts", name, shift, i-len(coded.In))
			}
		}
	}
}

// stateOf is a moment, packed and as the numbers it stands for.
func stateOf(t testing.TB, kind dtype.Type, n int) (packed []byte, values []float32) {
	t.Helper()
	list := spreadNumbers(n, 7)
	if kind != quant.Dyn8 {
		for i := range list {
			list[i] *= list[i]
		}
	}
	if kind == dtype.F32 {
		return raw(t, kind, list), list
	}
	packed, values = raw(t, kind, list), make([]float32, n)
	if err := quant.Decode(kind, values, packed, len(values)); err != nil {
		t.Fatal(err)
	}
	return packed, values
}

func numbersIn(b []byte) []float32 {
	list := make([]float32, len(b)/4)
	for i := range list {
		list[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return list
}

// Gradients that are NaN leave the weight as it is and clear its moments, and
// change nothing else.
func TestCodedUpdateLeavesNoNumbersAside(t *testing.T) {
	d := openGPU(t, Options{})
	defer d.Close()
	const n = 1000
	args := op.Args{Scalars: optim.AdamStep{Rate: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Bias1: 0.5, Bias2: 0.7}.Scalars()}
	gradient := spreadNumbers(n, 2)
	gradient[5], gradient[300], gradient[999] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
	w, g, clip := raw(t, dtype.F32, spreadNumbers(n, 1)), raw(t, dtype.BF16, gradient), raw(t, dtype.F32, []float32{1, 2})
	for name, c := range updateCalls(t, n, quant.Dyn8, quant.UDyn8) {
		operands := [][]byte{w, g}
		for _, typ := range c.In[2 : len(c.In)-1] {
			packed, _ := stateOf(t, typ.DType, n)
			operands = append(operands, packed)
		}
		after := launched(t, d, c, args, 0, append(operands, clip)...)
		for _, i := range []int{5, 300, 999} {
			if !bytes.Equal(after[0][4*i:4*i+4], w[4*i:4*i+4]) {
				t.Errorf("%s: weight %d changed", name, i)
			}
		}
		for k := range c.In[2 : len(c.In)-1] {
			values := make([]float32, n)
			if err := quant.Decode(c.In[2+k].DType, values, after[2+k], len(values)); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(values[5], values[300], values[999]); got != "0 0 0" || math.IsNaN(float64(values[6])) {
				t.Errorf("%s: moment %d became %s, next to %v", name, k, got, values[6])
			}
		}
	}
}
