package cpu

import (
	"bytes"
	"math"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

// eightBit is a launch of AdamW with coded states on a device of its own.
func eightBit(t *testing.T, n int, change func(g []float32)) (before, after [][]byte) {
	t.Helper()
	d := Open(Options{Threads: 2, Limit: 64 << 20})
	q := openQueue(t, d)
	for _, c := range op.Cases(dtype.F32) {
		if c.Call.Kind != op.Adam || !c.Call.In[2].DType.Block() || c.Call.In[0].Shape.Elements() != int64(n) {
			continue
		}
		w := place(t, d, c)
		change(view[float32](w.launch.Buffers[1]))
		for _, b := range w.launch.Buffers[:5] {
			before = append(before, bytes.Clone(b.Host()))
		}
		must(t, q.Launch(w.kernel, &w.launch))
		must(t, q.Sync())
		for _, b := range w.launch.Buffers[:5] {
			after = append(after, bytes.Clone(b.Host()))
		}
		must(t, w.memory.Free())
		break
	}
	must(t, q.Close())
	must(t, d.Close())
	return before, after
}

func numbers(t *testing.T, typ dtype.Type, n int, b []byte) []float32 {
	t.Helper()
	out := make([]float32, n)
	if typ.Block() {
		must(t, quant.Decode(typ, out, b))
		return out
	}
	a, err := op.Decode(op.Type{DType: typ, Shape: []int64{int64(n)}}, b)
	must(t, err)
	for i, f := range a.F {
		out[i] = float32(f)
	}
	return out
}

// The fused update gives the bits of its parts: all states decoded, one step, all coded
// again.
func TestCodedStatesAreTheirParts(t *testing.T) {
	const n = 1031
	before, after := eightBit(t, n, func([]float32) {})
	w, g := numbers(t, dtype.F32, n, before[0]), numbers(t, dtype.F32, n, before[1])
	m, v := numbers(t, dtype.Dyn8, n, before[2]), numbers(t, dtype.UDyn8, n, before[3])
	a := kernel.Adam{Rate: 1e-2, Decay: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Bias1: 0.271, Bias2: 0.0547, Clip: 0.75}
	a.Update(w, g, m, v)
	for i, got := range numbers(t, dtype.F32, n, after[0]) {
		if got != w[i] {
			t.Fatalf("weight %d is %v, want %v", i, got, w[i])
		}
	}
	for i, s := range []struct {
		kind   dtype.Type
		values []float32
	}{{dtype.Dyn8, m}, {dtype.UDyn8, v}} {
		want := make([]byte, s.kind.Bytes(n))
		must(t, quant.Encode(s.kind, want, s.values))
		if !bytes.Equal(after[2+i], want) {
			t.Errorf("state %d does not have the bytes of its numbers", i)
		}
	}
}

// A gradient that is no number leaves its weight and its neighbours' alone.
func TestCodedStatesLeaveOutWhatIsNoNumber(t *testing.T) {
	const n = 1031
	bad := map[int]float32{0: float32(math.NaN()), 300: float32(math.Inf(1)), 301: float32(math.Inf(-1)), n - 1: float32(math.NaN())}
	_, clean := eightBit(t, n, func([]float32) {})
	before, after := eightBit(t, n, func(g []float32) {
		for i, f := range bad {
			g[i] = f
		}
	})
	old, got, want := numbers(t, dtype.F32, n, before[0]), numbers(t, dtype.F32, n, after[0]), numbers(t, dtype.F32, n, clean[0])
	m, v := numbers(t, dtype.Dyn8, n, after[2]), numbers(t, dtype.UDyn8, n, after[3])
	for i := range got {
		if _, is := bad[i]; is {
			want[i] = old[i]
			if m[i] != 0 || v[i] != 0 {
				t.Errorf("states %d are %v and %v, want 0", i, m[i], v[i])
			}
		}
		if got[i] != want[i] {
			t.Errorf("weight %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// BenchmarkCodedStates compares AdamW with states in 8 bits to the one with states in f32:
// the best time of one over the best time of the other, taken in turns.
func BenchmarkCodedStates(b *testing.B) {
	const n = 1 << 20
	d := Open(Options{})
	defer d.Close()
	m, err := d.Alloc(5 * 4 * n)
	must(b, err)
	defer m.Free()
	q := openQueue(b, d)
	defer q.Close()
	args := &op.Args{F: [8]float32{op.ArgRate: 1e-3, op.ArgBeta1: 0.9, op.ArgBeta2: 0.999, op.ArgEps: 1e-8, op.ArgBias1: 1, op.ArgBias2: 1}}
	launch := func(states ...dtype.Type) func() error {
		shape := []int64{n}
		types := []op.Type{{DType: dtype.F32, Shape: shape}, {DType: dtype.BF16, Shape: shape}, {DType: states[0], Shape: shape}, {DType: states[1], Shape: shape}, {DType: dtype.F32, Shape: []int64{2}}}
		call, err := op.Make(op.Adam, op.Attr{Decoupled: true}, types...)
		must(b, err)
		k, err := d.Kernel(call)
		must(b, err)
		l := &device.Launch{Args: args}
		at := int64(0)
		for _, t := range types {
			l.Buffers = append(l.Buffers, device.Buffer{Memory: m, Offset: at, Bytes: t.Bytes()})
			at += up(t.Bytes())
		}
		l.Buffers = append(l.Buffers, l.Buffers[0], l.Buffers[2], l.Buffers[3])
		return func() error { return q.Launch(k, l) }
	}
	wide, coded := launch(dtype.F32, dtype.F32), launch(dtype.Dyn8, dtype.UDyn8)
	slow, fast := time.Duration(1<<62), time.Duration(1<<62)
	for b.Loop() {
		clear(m.Host())
		slow = min(slow, elapsed(b, q, wide))
		clear(m.Host())
		fast = min(fast, elapsed(b, q, coded))
	}
	b.ReportMetric(slow.Seconds()/fast.Seconds(), "of-f32-states")
	b.ReportMetric(n/fast.Seconds()/1e6, "M/s")
}
