package rig

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/quant"
)

// quickCPU is this computer's CPU, measured quickly and closed when the test ends.
func quickCPU(t *testing.T) *Rig {
	t.Helper()
	o := quick()
	o.Cache, o.Measure = t.TempDir(), true
	r, err := Open("cpu", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// quickGPU opens a fake GPU that is measured the first time.
func quickGPU(t *testing.T, cache string) *Rig {
	t.Helper()
	fakeComputer(1)
	o := quick()
	o.Cache, o.Measure = cache, true
	o.sizes.gpu = calibrationSizes{Copy: 1 << 16, Side: 32}
	r, err := Open("fake:0", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func callOf(t *testing.T, kind op.Kind, a op.Attr, in ...op.Type) op.Call {
	t.Helper()
	c, err := op.Make(kind, a, in...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The first run on a computer with a GPU measures it, without being asked to; the next takes
// what was measured.
func TestGPUsAreMeasuredTheFirstTime(t *testing.T) {
	cache := t.TempDir()
	first := quickGPU(t, cache).Machine.Devices[0]
	for _, key := range []string{"in", "out", "f32", "bandwidth", "launch", "signal", "handoff", "context"} {
		if first.Sources[key] != machine.Measured {
			t.Errorf("%s is %s", key, first.Sources[key])
		}
	}
	again := quickGPU(t, cache).Machine.Devices[0]
	if again.Compute != first.Compute || again.Handoff != first.Handoff {
		t.Errorf("measured again: %+v, %+v", first, again)
	}
}

// Forecasts ask for the times of calls: of every kind and type, within the memory there is,
// and the device has its memory back afterwards.
func TestCallsAreMeasured(t *testing.T) {
	r := quickGPU(t, t.TempDir())
	calls := r.Machine.Devices[0].Calls
	before, _ := r.Devices[0].(interface{ Allocated() (int64, int64) }).Allocated()
	q := of(dtype.F32, 2, 64, 64)
	for _, c := range []op.Call{
		callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.F32, 64, 32), of(dtype.F32, 16, 32)),
		callOf(t, op.Attention, op.Attr{Heads: 2, KVHeads: 2, Causal: true, Scale: 1, Segments: true, Document: 16}, q, q, q, of(dtype.I32, 2, 64)),
		callOf(t, op.Embedding, op.Attr{}, of(dtype.I32, 40), of(dtype.F32, 20, 8)),
		callOf(t, op.Dequantize, op.Attr{To: dtype.F32, Shape: []int64{64, 64}}, of(quant.NF4, 64, 64)),
		callOf(t, op.RMSNorm, op.Attr{Eps: 1e-5}, of(dtype.BF16, 64, 64), of(dtype.BF16, 64)),
	} {
		took, ok := calls.Time(c)
		if !ok || took.Device <= 0 || took.Launch <= 0 || took.Device > time.Second {
			t.Errorf("%v: %+v, %v", c, took, ok)
		}
		if again, _ := calls.Time(c); again != took {
			t.Errorf("%v: measured again", c)
		}
	}
	large := callOf(t, op.Add, op.Attr{}, of(dtype.F32, 1<<20), of(dtype.F32, 1<<20))
	if _, ok := calls.Within(1 << 20).Time(large); ok {
		t.Error("12 MiB were taken of 1")
	}
	if now, _ := r.Devices[0].(interface{ Allocated() (int64, int64) }).Allocated(); now != before {
		t.Errorf("%d bytes are held, %d before", now, before)
	}
}

// On a CPU forecasts ask for the times of short calls, with weights and states that no cache holds where
// that matters. What would take as long as training itself is left to tables.
func TestCPUsMeasureShortCalls(t *testing.T) {
	r := quickCPU(t)
	matmul := func(m, n, k int64) op.Call {
		return callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.F32, m, k), of(dtype.F32, n, k))
	}
	n := int64(1 << 14)
	adam := callOf(t, optim.Adam, op.Attr{}, of(dtype.F32, n), of(dtype.F32, n), of(quant.Dyn8, n), of(quant.UDyn8, n), of(dtype.F32, 2))
	calls := r.calls[0]
	rows := callOf(t, op.QuantizedMatmul, op.Attr{}, of(dtype.BF16, 1, 256), of(quant.BF16x32, 64, 256))
	for _, c := range []op.Call{matmul(1, 64, 64), matmul(64, 64, 64), adam, rows} {
		clear(calls.spent) // however long the others took
		if took, ok := calls.Time(c); !ok || took.Device <= 0 {
			t.Errorf("%v is not measured: %v", c, took)
		}
	}
	if _, most := r.Devices[0].(interface{ Allocated() (int64, int64) }).Allocated(); most != 0 {
		t.Errorf("measuring counts as %d bytes of a run", most)
	}
	if _, ok := calls.Time(matmul(8192, 8192, 8192)); ok {
		t.Error("a matmul of seconds is measured")
	}
	for want, c := range map[bool][]op.Call{false: {matmul(1, 64, 64), adam, rows}, true: {matmul(512, 64, 512)}} {
		for _, c := range c {
			if got := cpuWhole(c); got != want {
				t.Errorf("%v lies elsewhere each time: %v, want %v", c, got, want)
			}
		}
	}
	for _, arithmetic := range []bool{false, true} { // each kind has time of its own
		calls.spent = map[bool]time.Duration{arithmetic: 2 * cpuSpent}
		for rows, most := range map[int64]bool{2: false, 64: true} {
			if _, ok := calls.Time(matmul(rows, 32, 64)); ok == (arithmetic == most) {
				t.Errorf("%d rows are measured: %v, when the time of those that wait for arithmetic is spent: %v", rows, ok, arithmetic)
			}
		}
		clear(calls.known)
	}
}

// Of calls that memory bounds, those between two that were measured are interpolated.
func TestCallsBetweenOthersAreInterpolated(t *testing.T) {
	add := func(n int64) op.Call { return callOf(t, op.Add, op.Attr{}, of(dtype.F32, n, 8), of(dtype.F32, n, 8)) }
	times := &callTimes{known: map[string]machine.CallTime{}, similar: map[string][]sizedTime{}, unknown: map[string]bool{}}
	group := times.group(add(1))
	for n, took := range map[int64]time.Duration{100: 10, 300: 30, 3000: 300} {
		times.add(add(n).String(), group, add(n), machine.CallTime{Device: took * time.Microsecond, Launch: time.Microsecond})
	}
	for n, want := range map[int64]time.Duration{100: 10, 200: 20, 250: 25, 1000: 0, 50: 0, 5000: 0} {
		if got, _ := times.Time(add(n)); got.Device != want*time.Microsecond {
			t.Errorf("%d rows: %v, want %v", n, got.Device, want*time.Microsecond)
		}
	}
}

// Times of calls stay in the cache. Where some are much longer than what is measured now, they
// are from a busy minute, and all are measured again. The factors are far beyond what two
// measurements on a busy computer differ by.
func TestTimesOfABusyMinuteAreForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		doctor  float64
		haunted bool
	}{"from a quiet minute": {1e-3, false}, "from a busy minute": {1e3, true}} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			matmul := callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.F32, 96, 96), of(dtype.F32, 96, 96))
			norm := callOf(t, op.RMSNorm, op.Attr{Eps: 1e-5}, of(dtype.F32, 64, 64), of(dtype.F32, 64))
			r := quickGPU(t, cache)
			for _, call := range []op.Call{matmul, norm} {
				if _, ok := r.Machine.Devices[0].Calls.Time(call); !ok {
					t.Fatal(call)
				}
			}
			times := r.calls[0]
			if err := times.close(); err != nil {
				t.Fatal(err)
			}
			e, err := times.o.load(times.key)
			if err != nil || len(e.Calls) != 2 {
				t.Fatal(e, err)
			}
			e.Calls = maps.Clone(e.Calls)
			for key, took := range e.Calls {
				took.Device = time.Duration(c.doctor * float64(took.Device))
				e.Calls[key] = took
			}
			if err := times.o.store(e); err != nil {
				t.Fatal(err)
			}
			later := newCallTimes(r.Devices[0], r.o)
			for _, call := range []op.Call{matmul, norm} {
				took, ok := later.Time(call)
				cached := false
				for _, was := range e.Calls {
					cached = cached || was == took
				}
				if !ok || cached == c.haunted {
					t.Errorf("%v: %v, taken from the cache: %v", call.Kind, took.Device, cached)
				}
			}
			if err := later.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A cached time stays unless the call takes less than haunted of it now.
func TestOneTimeSpeaksForTheCache(t *testing.T) {
	cached := machine.CallTime{Device: 100 * time.Microsecond}
	for now, stays := range map[time.Duration]bool{86: true, 99: true, 900: true, 84: false, 1: false} {
		times := &callTimes{cached: map[string]machine.CallTime{"another": cached}, confirmed: map[bool]int{}}
		took := times.confirm(false, cached, machine.CallTime{Device: now * time.Microsecond})
		if kept := times.cached != nil; kept != stays || (took == cached) != stays || times.changed == stays {
			t.Errorf("%d µs now: %v counts, the cache stays: %v", now, took.Device, kept)
		}
	}
}

// Matmuls of few rows wait for memory, and those of many for arithmetic: that times of one kind are those of now says
// nothing of the other.
func TestBothKindsOfMatmulsAreConfirmed(t *testing.T) {
	matmul := func(rows int64) op.Call {
		return callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.F32, rows, 64), of(dtype.F32, 64, 64))
	}
	cache := t.TempDir()
	r := quickGPU(t, cache)
	many := []op.Call{matmul(32), matmul(48), matmul(64), matmul(80), matmul(96)}
	for _, call := range append(many, matmul(1)) {
		if _, ok := r.Machine.Devices[0].Calls.Time(call); !ok {
			t.Fatal(call)
		}
	}
	times := r.calls[0]
	if err := times.close(); err != nil {
		t.Fatal(err)
	}
	e, err := times.o.load(times.key)
	if err != nil {
		t.Fatal(err)
	}
	later := newCallTimes(r.Devices[0], r.o)
	later.cached = maps.Clone(e.Calls)
	for key, took := range later.cached { // far from what two measurements differ by
		if key == keyOf(t, later, matmul(1)) {
			took.Device *= 1000
		} else {
			took.Device /= 1000
		}
		later.cached[key] = took
	}
	for _, call := range many {
		if _, ok := later.Time(call); !ok || later.cached == nil {
			t.Fatalf("%v: the cache is gone: %v", call, later.cached == nil)
		}
	}
	if _, ok := later.Time(matmul(1)); !ok || later.cached != nil {
		t.Error("times of a busy minute stay for calls of few rows")
	}
	if err := later.close(); err != nil {
		t.Error(err)
	}
}

// keyOf is the key of a call among the times of a device.
func keyOf(t *testing.T, times *callTimes, c op.Call) string {
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return times.prefix() + string(raw)
}

// Rates of a host and of a link that a quick look finds much faster were cached in a busy
// minute: those of a host are raised at once, those of a link measured again. Those that are
// slower now stay.
func TestRatesOfABusyMinuteAreMeasuredAgain(t *testing.T) {
	for name, c := range map[string]struct {
		doctor func(*entry)
		again  bool
		raised bool
	}{
		"no faster": {func(*entry) {}, false, false},
		"a slow host": {func(e *entry) {
			if e.Host != nil {
				e.Host.Copy /= 1e8
				e.Host.CopyOne /= 1e8
			}
		}, false, true},
		"a slow link": {func(e *entry) {
			if e.Device != nil && e.Host == nil {
				e.Device.Link.In /= 1e8
			}
		}, true, false},
		"a fast minute": {func(e *entry) {
			if e.Host != nil {
				e.Host.Copy *= 1000
				e.Host.Compute.F32 *= 1000
			}
			if e.Device != nil {
				e.Device.Link.In *= 1000
				e.Device.Link.Out *= 1000
			}
		}, false, false},
	} {
		fakeComputer(1)
		o := quick()
		o.Cache, o.Measure = t.TempDir(), true
		o.sizes.gpu, o.sizes.copyBytes = calibrationSizes{Copy: 4 << 20, Side: 32}, 32<<20
		r, err := Open("fake:0", o)
		if err != nil {
			t.Fatal(err)
		}
		var stored entry
		for _, key := range []string{hostKey(r.Machine), deviceKey(r.Devices[0])} {
			e, err := o.load(key)
			if err != nil {
				t.Fatal(key, err)
			}
			// What two measurements differ by, on a computer that others keep busy during one of them,
			// is not what this is about.
			if e.Host != nil {
				e.Host.Copy, e.Host.Compute.F32 = 1e4*e.Host.Copy, 1e4*e.Host.Compute.F32
			} else {
				e.Device.Link.In, e.Device.Link.Out = 1e4*e.Device.Link.In, 1e4*e.Device.Link.Out
			}
			c.doctor(&e)
			if e.Host != nil {
				e.At = time.Now().Add(-2 * lookInterval)
				stored = e
			}
			if err := o.store(e); err != nil {
				t.Fatal(err)
			}
		}
		o.sizes.looks = true
		measured := timesMeasured(&o)
		if _, err := Describe(r.Devices, o); err != nil {
			t.Fatal(err)
		}
		if again := *measured > 0; again != c.again {
			t.Errorf("%s: measured again: %v", name, again)
		}
		now, err := o.load(hostKey(r.Machine))
		if raised := err == nil && now.Host.Copy > stored.Host.Copy && now.Host.CopyOne > stored.Host.CopyOne; raised != c.raised || err != nil {
			t.Errorf("%s: %v, raised: %v; copies at %v instead of %v", name, err, raised, now.Host.Copy, stored.Host.Copy)
		}
		if err := r.Forget(); err != nil {
			t.Error(err)
		}
		if _, err := o.load(hostKey(r.Machine)); !errors.Is(err, errNotCached) {
			t.Errorf("%s: forgotten, and %v", name, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Rows of launches go on where the last one has ended, so that weights that a row has read, and a cache holds now, are
// not read again before all others were.
func TestRowsOfLaunchesGoOn(t *testing.T) {
	b := cpuBench(t)
	c := callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.F32, 4, 64), of(dtype.F32, 32, 64))
	b.cold = 9 * c.In[1].Bytes()
	w, err := b.prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.launches) != 10 || w.next != 2 {
		t.Fatalf("%d launches, the next is %d; want 10, of which two have run", len(w.launches), w.next)
	}
	for _, want := range []int{5, 8, 1} {
		if _, err := w.row(3); err != nil || w.next != want {
			t.Errorf("the next launch is %d, want %d (%v)", w.next, want, err)
		}
	}
}

// Where a call lies elsewhere each time, so do its operands and outputs; what it writes in place stays its operand.
func TestWholeCallsLieElsewhere(t *testing.T) {
	b := cpuBench(t)
	b.whole, b.cold = true, 1<<20
	for _, c := range []op.Call{
		callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.F32, 64, 64), of(dtype.F32, 32, 64)),
		callOf(t, optim.SGD, op.Attr{}, of(dtype.F32, 1<<12), of(dtype.F32, 1<<12), of(dtype.F32, 2)),
	} {
		w, err := b.prepare(c)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.launches) < 3 {
			t.Fatalf("%v: %d launches", c, len(w.launches))
		}
		type place struct{ buffer, offset int64 }
		seen := map[place]bool{}
		for _, l := range w.launches {
			for i, buffer := range l.Buffers {
				at := place{int64(i), buffer.Offset}
				if seen[at] {
					t.Errorf("%v: buffer %d lies at %d twice", c, i, buffer.Offset)
				}
				seen[at] = true
			}
			for out, in := range c.InPlace() {
				if l.Buffers[len(c.In)+out] != l.Buffers[in] {
					t.Errorf("%v: output %d is not operand %d", c, out, in)
				}
			}
		}
	}
}

// Of a CPU's times the middle counts: a run meets the same disturbances.
func TestTypicalTimes(t *testing.T) {
	if got := middle([]time.Duration{9, 1, 5, 100, 4}); got != 5 {
		t.Errorf("%d is the middle", got)
	}
}

// A CPU measures a call once more when it is asked for a while later, and the shorter time counts. The times given are far
// beyond what a measurement can take.
func TestCPUsMeasureTwice(t *testing.T) {
	r := quickCPU(t)
	calls := r.calls[0]
	c := callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.F32, 4, 64), of(dtype.F32, 32, 64))
	if _, ok := calls.Time(c); !ok || len(calls.single) != 1 {
		t.Fatalf("%d calls wait for a second measurement, want 1", len(calls.single))
	}
	key := slices.Collect(maps.Keys(calls.single))[0]
	long, short, ago := machine.CallTime{Device: time.Hour}, machine.CallTime{Device: 1}, time.Now().Add(-time.Hour)
	for _, step := range []struct {
		known      machine.CallTime
		measured   time.Time
		spent      time.Duration
		same, left bool
	}{
		{long, time.Now().Add(time.Hour), 0, true, true},
		{long, ago, 2 * cpuSpent, true, true},
		{short, ago, 0, true, false},
		{long, ago, 0, false, false},
	} {
		calls.known[key], calls.single[key], calls.spent = step.known, step.measured, map[bool]time.Duration{waitsForArithmetic(c): step.spent}
		got, ok := calls.Time(c)
		if _, left := calls.single[key]; !ok || (got == step.known) != step.same || left != step.left {
			t.Errorf("%+v: %v, and waits: %v", step, got, left)
		}
	}
	calls.spent[true] = time.Hour
	if r.MeasureAnew(); calls.spent[true] != 0 {
		t.Errorf("another model may measure %v less", calls.spent)
	}
}

// Weights that the last cache of a CPU holds are read from there: such calls are measured, and known, apart.
func TestWeightsInACache(t *testing.T) {
	r := quickCPU(t)
	calls := r.calls[0]
	c := callOf(t, op.MatMul, op.Attr{TransB: true}, of(dtype.F32, 1, 64), of(dtype.F32, 32, 64))
	small, large := calls.Within(1<<30).(machine.Reader).Among(1<<20), calls.Among(1<<40)
	for _, from := range []machine.Calls{small, large} {
		if _, ok := from.Time(c); !ok {
			t.Fatalf("%v is not measured", c)
		}
	}
	if len(calls.known) != 2 {
		t.Fatalf("%d times are known, want 2", len(calls.known))
	}
	clear(calls.single)
	for key := range calls.known {
		calls.known[key] = machine.CallTime{Device: 2}
		if strings.HasPrefix(key, cachedPrefix) {
			calls.known[key] = machine.CallTime{Device: 1}
		}
	}
	for from, want := range map[machine.Calls]time.Duration{small: 1, large: 2, calls: 2, small.Within(1 << 20): 1} {
		if got, _ := from.Time(c); got.Device != want {
			t.Errorf("%v, want %v", got.Device, want)
		}
	}
	for text, want := range map[string]int64{"32768K\n": 32 << 20, "1M": 1 << 20, "": usualCache, "many": usualCache} {
		if got := cacheSize(text); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}

// cpuBench is a bench on the CPU, for as long as a test runs.
func cpuBench(t *testing.T) *bench {
	t.Helper()
	d, err := device.Open(cpuDriver, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(d)
	if err != nil {
		t.Fatal(errors.Join(err, d.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(b.close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Of calls that take now a little less and now a little more, what two measurements say adds up to what steps of them take on
// average. Of one that other programs disturbed, the other counts.
func TestMeasuredTwice(t *testing.T) {
	const usual = 10 * time.Microsecond
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() machine.CallTime { // from 0.8 to 1.2 times the usual
		return machine.CallTime{Device: time.Duration((0.8 + 0.4*random.Float64()) * float64(usual))}
	}
	const calls = 2000
	var forecast, shorter time.Duration
	for range calls {
		a, b := draw(), draw()
		forecast += twice(a, b).Device
		shorter += min(a.Device, b.Device)
	}
	if off := float64(forecast)/float64(calls*usual) - 1; math.Abs(off) > 0.01 {
		t.Errorf("steps are forecast %.1f%% off; the shorter times would give %.1f%%", 100*off, 100*(float64(shorter)/float64(calls*usual)-1))
	}
	disturbed := machine.CallTime{Device: 2 * usual, Launch: usual}
	for _, pair := range [][2]machine.CallTime{{{Device: usual}, disturbed}, {disturbed, {Device: usual}}} {
		if got := twice(pair[0], pair[1]); got != (machine.CallTime{Device: usual}) {
			t.Errorf("of %v and one that was disturbed: %v", usual, got)
		}
	}
}
