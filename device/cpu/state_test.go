package cpu

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
	"spillway/quant"
)

// eightBit is a launch of AdamW with coded states on a device of its own.
func eightBit(t *testing.T, n int, change func(g []float32)) (before, after [][]byte) {
	t.Helper()
	d := Open(Options{Threads: 2, Limit: 64 << 20})
	q := openQueue(t, d)
	for _, c := range op.Cases(dtype.F32) {
		if c.Call.Kind != optim.Adam || !c.Call.In[2].DType.Block() || c.Call.In[0].Shape.Elements() != int64(n) {
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
		must(t, quant.Decode(typ, out, b, len(out)))
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
	m, v := numbers(t, quant.Dyn8, n, before[2]), numbers(t, quant.UDyn8, n, before[3])
	var a kernel.Adam
	a.Set(optim.AdamStep{Rate: 1e-2, Decay: 0.1, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Bias1: 0.271, Bias2: 0.0547}.Scalars(), 0.75, [2]bool{})
	a.Update(w, g, [2][]float32{m, v})
	for i, got := range numbers(t, dtype.F32, n, after[0]) {
		if got != w[i] {
			t.Fatalf("weight %d is %v, want %v", i, got, w[i])
		}
	}
	for i, s := range []struct {
		kind   dtype.Type
		values []float32
	}{{quant.Dyn8, m}, {quant.UDyn8, v}} {
		want := make([]byte, s.kind.Bytes(n))
		must(t, quant.Encode(s.kind, want, s.values, len(s.values)))
		if !bytes.Equal(after[2+i], want) {
			t.Errorf("state %d does not have the bytes of its numbers", i)
		}
	}
}

// A gradient that is NaN leaves its weight and its neighbours' alone.
func TestQuantizedStatesLeaveOutNaN(t *testing.T) {
	const n = 1031
	bad := map[int]float32{0: float32(math.NaN()), 300: float32(math.Inf(1)), 301: float32(math.Inf(-1)), n - 1: float32(math.NaN())}
	_, clean := eightBit(t, n, func([]float32) {})
	before, after := eightBit(t, n, func(g []float32) {
		for i, f := range bad {
			g[i] = f
		}
	})
	old, got, want := numbers(t, dtype.F32, n, before[0]), numbers(t, dtype.F32, n, after[0]), numbers(t, dtype.F32, n, clean[0])
	m, v := numbers(t, quant.Dyn8, n, after[2]), numbers(t, quant.UDyn8, n, after[3])
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

// stepped are both states, the same before, after one step of AdamW with one gradient for all.
func stepped(t *testing.T, kept [2]dtype.Type, gradient float32, before []float32) (after [2][]float32) {
	t.Helper()
	d := Open(Options{Threads: 2, Limit: 64 << 20})
	defer d.Close()
	q := openQueue(t, d)
	defer q.Close()
	n := len(before)
	l, k, memory := adamLaunch(t, d, int64(n), dtype.F32, kept[:]...)
	l.Args.Scalars = optim.AdamStep{Rate: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Bias1: 1, Bias2: 1}.Scalars()
	view[float32](l.Buffers[4])[0] = 1
	copy(view[float32](l.Buffers[1]), slices.Repeat([]float32{gradient}, n))
	for i, typ := range kept {
		copy(l.Buffers[2+i].Host(), encoded(t, typ, before))
	}
	must(t, q.Launch(k, l))
	must(t, q.Sync())
	for i, typ := range kept {
		after[i] = numbers(t, typ, n, l.Buffers[2+i].Host())
	}
	must(t, memory.Free())
	return after
}

// Moments that decay below the normal numbers become zero: each of them in f32 and bf16, in
// 8 bits those of a block that has no others.
func TestStatesDecayToZero(t *testing.T) {
	const n, block, large = 600, quant.StateBlock, 0x1p-106
	before := slices.Repeat([]float32{0x1p-126 * 1.0078125}, n)
	before[block] = large
	for _, kept := range [][2]dtype.Type{{dtype.F32, dtype.F32}, {dtype.BF16, dtype.BF16}, {quant.Dyn8, quant.UDyn8}, {quant.Dyn8, dtype.F32}} {
		for i, after := range stepped(t, kept, 0, before) {
			for j, got := range after {
				zero := j != block && (!kept[i].Block() || j/block != 1)
				if (got == 0) != zero || got > large {
					t.Fatalf("%v: state %d of %v is %v, want zero: %v", kept, j, before[j], got, zero)
				}
			}
		}
	}
}

// Squares that are small but not zero stay so where means become larger by rounding: their
// roots are divided by.
func TestSmallSquaresStay(t *testing.T) {
	const n, gradient = 20, 1e-20 // whose square is below the normal numbers
	for i, after := range stepped(t, [2]dtype.Type{dtype.F16, dtype.F16}, gradient, make([]float32, n)) {
		if after[n-1] != 0x1p-24 {
			t.Errorf("state %d in f16 is %v, want 2^-24", i, after[n-1])
		}
	}
}

// encoded is numbers as a state holds them.
func encoded(t *testing.T, typ dtype.Type, list []float32) []byte {
	t.Helper()
	out := make([]byte, typ.Bytes(int64(len(list))))
	if typ.Block() {
		must(t, quant.Encode(typ, out, list, len(list)))
		return out
	}
	for i, f := range list {
		switch typ {
		case dtype.F32:
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(f))
		case dtype.BF16:
			binary.LittleEndian.PutUint16(out[2*i:], dtype.ToBF16(f))
		case dtype.F16:
			binary.LittleEndian.PutUint16(out[2*i:], dtype.ToF16(f))
		}
	}
	return out
}

// adamLaunch places the operands of AdamW in one memory, all zero.
func adamLaunch(t testing.TB, d *Device, n int64, gradient dtype.Type, states ...dtype.Type) (*device.Launch, device.Kernel, device.Memory) {
	t.Helper()
	shape := []int64{n}
	types := []op.Type{{DType: dtype.F32, Shape: shape}, {DType: gradient, Shape: shape}, {DType: states[0], Shape: shape}, {DType: states[1], Shape: shape}, {DType: dtype.F32, Shape: []int64{2}}}
	call, err := op.Make(optim.Adam, op.Attr{}, types...)
	must(t, err)
	k, err := d.Kernel(call)
	must(t, err)
	total := int64(0)
	for _, typ := range types {
		total += up(typ.Bytes())
	}
	m, err := d.Alloc(total)
	must(t, err)
	clear(m.Host())
	l := &device.Launch{Args: &op.Args{}}
	at := int64(0)
	for _, typ := range types {
		l.Buffers = append(l.Buffers, device.Buffer{Memory: m, Offset: at, Bytes: typ.Bytes()})
		at += up(typ.Bytes())
	}
	l.Buffers = append(l.Buffers, l.Buffers[0], l.Buffers[2], l.Buffers[3])
	return l, k, m
}

// BenchmarkCodedStates compares AdamW with states in 8 bits to the one with states in f32:
// the best time of one over the best time of the other, taken in turns.
func BenchmarkCodedStates(b *testing.B) {
	const n = 1 << 20
	d := Open(Options{})
	defer d.Close()
	q := openQueue(b, d)
	defer q.Close()
	launch := func(states ...dtype.Type) func() error {
		l, k, m := adamLaunch(b, d, n, dtype.BF16, states...)
		b.Cleanup(func() { m.Free() })
		l.Args.Scalars = optim.AdamStep{Rate: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Bias1: 1, Bias2: 1}.Scalars()
		return func() error { return q.Launch(k, l) }
	}
	wide, coded := launch(dtype.F32, dtype.F32), launch(quant.Dyn8, quant.UDyn8)
	slow, fast := time.Duration(1<<62), time.Duration(1<<62)
	for b.Loop() {
		slow = min(slow, elapsed(b, q, wide))
		fast = min(fast, elapsed(b, q, coded))
	}
	b.ReportMetric(slow.Seconds()/fast.Seconds(), "of-f32-states")
	b.ReportMetric(n/fast.Seconds()/1e6, "M/s")
}

// States in 16 bits are their f32 form rounded once, after the step; in f16 nothing
// becomes zero or infinite by rounding.
func TestNarrowStatesAreRoundedOnce(t *testing.T) {
	const n = 3000
	d := Open(Options{Threads: 2, Limit: 64 << 20})
	defer d.Close()
	q := openQueue(t, d)
	defer q.Close()
	for _, kept := range []dtype.Type{dtype.BF16, dtype.F16} {
		l, k, memory := adamLaunch(t, d, n, dtype.F32, kept, kept)
		l.Args.Scalars = optim.AdamStep{Rate: 1e-2, Beta1: 0.5, Beta2: 0.5, Eps: 1e-8, Bias1: 1, Bias2: 1}.Scalars()
		l.Args.Key, l.Args.Row = 3, 77 // which is not a multiple of four
		view[float32](l.Buffers[4])[0] = 1
		g := view[float32](l.Buffers[1])
		for i := range g {
			g[i] = float32(math.Pow(10, float64(i%12)-6)) * float32(1-2*(i%2)) // 1e-6 to 1e5, both signs
		}
		w, m, v := make([]float32, n), make([]float32, n), make([]float32, n)
		var a kernel.Adam
		a.Set(optim.AdamStep{Rate: 1e-2, Beta1: 0.5, Beta2: 0.5, Eps: 1e-8, Bias1: 1, Bias2: 1, Decoupled: true}.Scalars(), 1, [2]bool{})
		for range 3 {
			must(t, q.Launch(k, l))
			must(t, q.Sync())
			a.Update(w, g, [2][]float32{m, v})
			for k, state := range [][]float32{m, v} {
				for i, f := range state {
					state[i] = roundedState(kept, f, op.StateStream(l.Args.Key, k), l.Args.Row+uint64(i))
				}
			}
		}
		for i, want := range [][]float32{w, nil, m, v} {
			if want == nil {
				continue
			}
			for j, got := range numbers(t, []dtype.Type{dtype.F32, dtype.F32, kept, kept}[i], n, l.Buffers[i].Host()) {
				if got != want[j] {
					t.Fatalf("%v: element %d of operand %d is %v, want %v", kept, j, i, got, want[j])
				}
			}
		}
		must(t, memory.Free())
	}
}

// roundedState is one number of a state in 16 bits, by its definition.
func roundedState(t dtype.Type, f float32, s op.Stream, position uint64) float32 {
	if t == dtype.BF16 {
		return dtype.FromBF16(s.RoundState(f, position))
	}
	least, most := float32(math.Ldexp(1, -24)), float32(65504)
	switch r := dtype.FromF16(dtype.ToF16(f)); {
	case r == 0 && f != 0:
		return float32(math.Copysign(float64(least), float64(f)))
	case r > most:
		return most
	case r < -most:
		return -most
	default:
		return r
	}
}

// Adam's states in bf16 follow those in f32 over 5,000 iterations of gradients that become
// smaller and smaller. Rounded to nearest, the squares would stay at 0.25 for ever: the decay
// of 0.999 is less than half a unit in their last place.
func TestStatesInBF16DoNotFreeze(t *testing.T) {
	const n = 2048
	config, err := optim.Parse("adamw:lr=1e-4")
	must(t, err)
	d := Open(Options{Threads: 2, Limit: 64 << 20})
	defer d.Close()
	q := openQueue(t, d)
	defer q.Close()
	wide, wideKernel, first := adamLaunch(t, d, n, dtype.F32, dtype.F32, dtype.F32)
	narrowed, narrowKernel, second := adamLaunch(t, d, n, dtype.F32, dtype.BF16, dtype.BF16)
	for iteration := 1; iteration <= 5000; iteration++ {
		gradient := float32(1)
		if iteration > 300 {
			gradient = 0.01
		}
		if iteration > 3300 {
			gradient = 1e-4
		}
		scalars, err := config.Scalars(iteration, config.LR, true)
		must(t, err)
		for _, l := range []*device.Launch{wide, narrowed} {
			l.Args.Scalars, l.Args.Key = scalars, op.Key(1, uint64(iteration), 0, 1)
			view[float32](l.Buffers[4])[0] = 1
			for i := range view[float32](l.Buffers[1]) {
				view[float32](l.Buffers[1])[i] = gradient
			}
		}
		must(t, q.Launch(wideKernel, wide))
		must(t, q.Launch(narrowKernel, narrowed))
		must(t, q.Sync())
		if iteration != 300 && iteration != 3300 && iteration != 5000 {
			continue
		}
		for k, name := range []string{"exp_avg", "exp_avg_sq"} {
			want := float64(view[float32](wide.Buffers[2+k])[0])
			mean, square := 0.0, 0.0
			for i, f := range numbers(t, dtype.BF16, n, narrowed.Buffers[2+k].Host()) {
				off := float64(f)/want - 1
				mean, square = mean+float64(f)/n, square+off*off/n
				if off > 1 || off < -0.5 {
					t.Fatalf("iteration %d: element %d of %s is %v, in f32 %v", iteration, i, name, f, want)
				}
			}
			t.Logf("iteration %d: %s is %.3g in f32; in bf16 %.3g on average, a single one off by %.1f%%", iteration, name, want, mean, 100*math.Sqrt(square))
			if math.Abs(mean/want-1) > 0.015 || math.Sqrt(square) > 0.2 {
				t.Errorf("iteration %d: the mean of %s is %v, in f32 %v", iteration, name, mean, want)
			}
		}
		moved, rounded := float64(view[float32](wide.Buffers[0])[0]), 0.0
		for _, f := range view[float32](narrowed.Buffers[0]) {
			rounded += float64(f) / n
		}
		if math.Abs(rounded/moved-1) > 0.01 {
			t.Errorf("iteration %d: weights are %v on average, with states in f32 %v", iteration, rounded, moved)
		}
	}
	must(t, first.Free())
	must(t, second.Free())
}
