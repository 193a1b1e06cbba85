package rig

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/units"
)

// smallGrid takes a CPU some milliseconds.
var smallGrid = grid{
	Sides: []int64{8, 32}, Positions: []int64{8, 16}, Heads: []int64{2}, Head: []int64{16},
	Rows: []int64{4, 8}, Vocabulary: []int64{vocabulary}, Width: []int64{32}, Lines: []int64{2, 8}, Line: 128,
}

func measured(t *testing.T) machine.Device {
	t.Helper()
	dev, host := cpu.Open(cpu.Options{Threads: 1}), cpu.Open(cpu.Options{Threads: 1})
	reports := 0
	r, err := measureDevice(dev, calibrationSizes{Copy: units.MiB, Side: 64, Grid: smallGrid, Sustained: 10 * time.Millisecond, Host: host, Params: 1 << 20, Report: func(string) { reports++ }})
	if err != nil {
		t.Fatal(err)
	}
	if reports < 5 {
		t.Errorf("%d measurements were reported", reports)
	}
	for _, d := range []*cpu.Device{dev, host} {
		if err := d.Close(); err != nil { // names memory that was not freed
			t.Error(err)
		}
	}
	return r
}

// Every rate lies where a CPU's can be.
func TestMeasure(t *testing.T) {
	r := measured(t)
	const least, most = 1e4, 1e13 // on any computer, however busy it is; in other units, such as GB/s, they would lie elsewhere
	for name, rate := range map[string]units.Rate{"in": r.Link.In, "out": r.Link.Out, "both": r.Link.BothWays(), "host bandwidth": r.Link.HostBandwidth, "bandwidth": r.Bandwidth} {
		if rate < least || rate > most {
			t.Errorf("%s is %v", name, rate)
		}
	}
	for _, rate := range []units.Flops{r.Compute.F32, r.Sustained.F32} {
		if rate < least || rate > most {
			t.Errorf("matmuls run at %v", rate)
		}
	}
	for _, d := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, v := range variants() {
			if _, ok := r.Tables[d.String()][v]; ok == (v.Dropout && d == dtype.F32) {
				t.Errorf("%v of %v has a table: %v", v, d, ok)
			}
		}
	}
	if err := r.Tables.Check(); err != nil {
		t.Error(err)
	}
	for name, d := range map[string]time.Duration{"launch": r.Launch, "latency": r.Link.Latency} {
		if d <= 0 || d >= time.Second {
			t.Errorf("%s is %v", name, d)
		}
	}
}

// variants that are measured.
func variants() []op.Variant {
	list := slices.Collect(maps.Keys(shaped))
	for kind := range plain {
		list = append(list, op.Variant{Kind: kind})
	}
	return list
}

// A table is read with the sizes it was measured at: there it gives the measured rate.
func TestTablesAreReadAsMeasured(t *testing.T) {
	for v, make := range shaped {
		call, err := make(dtype.BF16, 256, 4096, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := call.Sizes(); !slices.Equal(got, []int64{256, 4096, 64}) || len(got) != v.Axes() || call.Variant() != v {
			t.Errorf("%v of 256, 4096, 64 is %v with the sizes %v", v, call.Variant(), got)
		}
	}
	for kind, make := range plain {
		call, err := make(dtype.F32, 16, 128)
		if err != nil {
			t.Fatal(err)
		}
		if got := call.Sizes(); len(got) != call.Variant().Axes() || got[0] < 16*128*4 {
			t.Errorf("%v of 2048 numbers has the sizes %v", kind, got)
		}
	}
}

// A measurement replaces what was known, and leaves the rest.
func TestDeviceTakesMeasuredRates(t *testing.T) {
	r := machine.Device{Link: machine.Link{In: 55e9, Out: 54e9, Bidirectional: 0.9}, Bandwidth: 4e12, Launch: time.Microsecond}
	r.Compute.F32, r.Compute.BF16, r.Sustained.BF16 = 50e12, 700e12, 600e12
	before := machine.Device{Memory: 7, Bandwidth: 1, Compute: machine.Compute{F8: 3}, Sources: machine.Sources{"memory": machine.Measured, "bandwidth": machine.Published, "f8": machine.Published}}
	d := before.WithMeasured(r)
	if d.Memory != 7 || d.Bandwidth != 4e12 || d.Link != r.Link || d.Compute.BF16 != 700e12 || d.Compute.F8 != 3 || d.Sustained.BF16 != 600e12 {
		t.Errorf("%+v", d)
	}
	if _, claimed := d.Sources["tf32"]; claimed || d.Sources["bf16"] != machine.Measured || d.Sources["f8"] != machine.Published || len(before.Sources) != 3 || before.Sources["bandwidth"] != machine.Published {
		t.Errorf("sources %v of %v", d.Sources, before.Sources)
	}
}

// rounding is a CPU that says it rounds f32 operands where it is set to.
type rounding struct {
	*cpu.Device
	on   bool
	sets []bool
}

func (r *rounding) TF32() bool      { return r.on }
func (r *rounding) SetTF32(on bool) { r.on, r.sets = on, append(r.sets, on) }

// A device that can round is measured as it is and as it rounds, and left as it was.
func TestTF32IsMeasured(t *testing.T) {
	dev := &rounding{Device: cpu.Open(cpu.Options{Threads: 1})}
	defer dev.Close()
	d, err := measureDevice(dev, calibrationSizes{Copy: units.MiB, Side: 64, Grid: grid{Sides: []int64{32}}, Sustained: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]machine.Compute{"burst": d.Compute, "sustained": d.Sustained} {
		if !(c.F32 > 0 && c.TF32 > 0 && c.BF16 > 0) {
			t.Errorf("%s rates are %+v", name, c)
		}
	}
	if len(d.Tables) != 3 || d.Tables.Check() != nil || !slices.Equal(dev.sets, []bool{true, false}) {
		t.Errorf("tables %v, rounding was set to %v", d.Tables, dev.sets)
	}
}

// A GPU that rounds is planned for at the rates of TF32, and its description without
// rounding stays as it is.
func TestAsTF32(t *testing.T) {
	plain := machine.Device{Compute: machine.Compute{F32: 60, TF32: 400}, Tables: machine.Tables{"f32": nil, tf32: {{Kind: op.MatMul}: {Rates: []float64{1}}}}}
	d := AsTF32(plain)
	if d.Compute.F32 != 400 || len(d.Tables["f32"]) != 1 || len(plain.Tables["f32"]) != 0 {
		t.Errorf("%+v of %+v", d, plain)
	}
	if d := AsTF32(machine.Device{Compute: machine.Compute{F32: 60}}); d.Compute.F32 != 60 {
		t.Errorf("%+v", d)
	}
}

// A call that updates is measured updating: with a factor that clips everything away it
// would do nothing, quickly.
func TestUpdatesAreMeasuredUpdating(t *testing.T) {
	dev := cpu.Open(cpu.Options{Threads: 1})
	defer dev.Close()
	b, err := newBench(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	call, err := plain[optim.Adam](dtype.F32, 2, 128)
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.prepare(call)
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(w.launches[0].Buffers[0].Host())
	if _, err := w.row(1); err != nil {
		t.Fatal(err)
	}
	after := w.launches[0].Buffers[0].Host()
	if slices.Equal(after, before) {
		t.Error("no weight changed: nothing was updated")
	}
	for i := 0; i < len(after); i += 4 {
		if x := math.Float32frombits(binary.LittleEndian.Uint32(after[i:])); x != x {
			t.Fatalf("weight %d became NaN, which updates in a training run do not", i/4)
		}
	}
}

// timed is a device on which launching and running a kernel take given times, of a clock that only sleeping moves
// (testing/synctest). It captures what its queues are given, and runs that without launching; or refuses to.
type timed struct {
	device.Device
	launch, run      time.Duration
	refuses          bool
	captured, closed int
	pending          int // launches that have not run
	capturing        bool
}

func (d *timed) Queue(string) (device.Queue, error) { return &timedQueue{d: d}, nil }

type timedQueue struct {
	device.Queue
	d *timed
}

func (q *timedQueue) Launch(device.Kernel, *device.Launch) error {
	if q.d.pending++; !q.d.capturing {
		time.Sleep(q.d.launch)
	}
	return nil
}

func (q *timedQueue) Sync() error {
	time.Sleep(time.Duration(q.d.pending) * q.d.run)
	q.d.pending = 0
	return nil
}

func (*timedQueue) Copy(_, _ device.Buffer) error { return nil }
func (*timedQueue) Close() error                  { return nil }

func (d *timed) Capture(_ []device.Queue, issue func() error) (device.Graph, error) {
	if d.refuses {
		return nil, device.ErrNotCapturable
	}
	d.captured++
	d.capturing = true
	err := issue()
	g := &timedGraph{d, d.pending}
	d.capturing, d.pending = false, 0
	return g, err
}

type timedGraph struct {
	d        *timed
	launches int
}

func (g *timedGraph) Launch() error {
	g.d.pending += g.launches
	return nil
}

func (g *timedGraph) Close() error {
	g.d.closed++
	return nil
}

// A call is captured where the device waits for launches, and nowhere else.
func TestOnlyLaunchBoundCallsAreCaptured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for launch, captured := range map[time.Duration]bool{time.Microsecond: false, 100 * time.Microsecond: true} {
			dev := &timed{Device: cpu.Open(cpu.Options{Threads: 1}), launch: launch, run: 50 * time.Microsecond}
			const side = 256
			rate, err := burstRate(dev, dtype.F32, side)
			if err != nil {
				t.Fatal(err)
			}
			if (dev.captured > 0) != captured || dev.captured != dev.closed {
				t.Errorf("launches of %v: captured %d times, closed %d", launch, dev.captured, dev.closed)
			}
			took := dev.run
			if !captured { // by the row, which begins with a launch
				took += launch
			}
			if want := 2 * side * side * side / took.Seconds(); math.Abs(float64(rate)/want-1) > 1e-9 {
				t.Errorf("launches of %v: matmuls run at %v, want %g", launch, rate, want)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Small kernels are timed without launch overhead, where the device can capture graphs.
func TestKernelsAreTimedWithoutLaunches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, refuses := range []bool{false, true} {
			dev := &timed{Device: cpu.Open(cpu.Options{Threads: 1}), refuses: refuses, launch: 5 * time.Microsecond, run: 2 * time.Microsecond}
			var r machine.Device
			if err := measureLaunches(&r, dev, calibrationSizes{}); err != nil {
				t.Fatal(err)
			}
			if want := map[bool]time.Duration{false: dev.run}[refuses]; r.Launch != dev.launch+dev.run || r.Kernel != want {
				t.Errorf("a device that refuses to capture (%v): %v per launch, %v per kernel", refuses, r.Launch, r.Kernel)
			}
			if dev.captured != dev.closed || (dev.captured > 0) == refuses {
				t.Errorf("a device that refuses to capture (%v): captured %d times, closed %d", refuses, dev.captured, dev.closed)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
