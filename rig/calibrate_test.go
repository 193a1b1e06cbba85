package rig

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"
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
	for name, rate := range map[string]units.Rate{"in": r.Link.In, "out": r.Link.Out, "both": r.Link.BothWays(), "host bandwidth": r.Link.HostBandwidth, "bandwidth": r.Bandwidth} {
		if rate < 50e6 || rate > 1e12 {
			t.Errorf("%s is %v", name, rate)
		}
	}
	for _, rate := range []units.Flops{r.Compute.F32, r.Sustained.F32} {
		if rate < 50e6 || rate > 1e12 {
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
		if d <= 0 || d > 10*time.Millisecond {
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

// capturing is a device that captures what its queues are given and launches it in hardly
// any time; or one that refuses to.
type capturing struct {
	device.Device
	refuses          bool
	captured, closed int
}

func (n *capturing) Capture([]device.Queue, func() error) (device.Graph, error) {
	if n.refuses {
		return nil, device.ErrNotCapturable
	}
	n.captured++
	return (*graph)(n), nil
}

type graph capturing

func (r *graph) Launch() error {
	time.Sleep(time.Microsecond) // longer than no time, by any clock
	return nil
}

func (r *graph) Close() error {
	r.closed++
	return nil
}

// slowLaunch is a device whose queues take long to launch something, and no time to run it.
type slowLaunch struct{ capturing }

func (s *slowLaunch) Queue(name string) (device.Queue, error) { return &slowQueue{}, nil }

type slowQueue struct{ device.Queue }

func (*slowQueue) Launch(device.Kernel, *device.Launch) error {
	time.Sleep(100 * time.Microsecond)
	return nil
}

func (*slowQueue) Copy(_, _ device.Buffer) error { return nil }
func (*slowQueue) Sync() error                   { return nil }
func (*slowQueue) Close() error                  { return nil }

// A call is captured where the device waits for launches, and nowhere else.
func TestOnlyLaunchBoundCallsAreCaptured(t *testing.T) {
	quick := &capturing{Device: cpu.Open(cpu.Options{Threads: 1})}
	slow := &slowLaunch{capturing{Device: quick.Device}}
	for dev, graphs := range map[device.Device]*int{quick: &quick.captured, slow: &slow.captured} {
		if _, err := burstRate(dev, dtype.F32, 256); err != nil {
			t.Fatal(err)
		}
		if (*graphs > 0) != (dev == device.Device(slow)) {
			t.Errorf("%T: captured %d times", dev, *graphs)
		}
	}
	if err := quick.Close(); err != nil {
		t.Error(err)
	}
}

// Small kernels are timed without launch overhead, where the device can capture graphs.
func TestKernelsAreTimedWithoutLaunches(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		dev := &capturing{Device: cpu.Open(cpu.Options{Threads: 1}), refuses: refuses}
		var r machine.Device
		if err := measureLaunches(&r, dev, calibrationSizes{}); err != nil {
			t.Fatal(err)
		}
		if r.Launch <= 0 || r.Kernel >= r.Launch || (r.Kernel > 0) == refuses {
			t.Errorf("a device that refuses to capture (%v): %v per launch, %v per kernel", refuses, r.Launch, r.Kernel)
		}
		if dev.captured != dev.closed || (dev.captured > 0) == refuses {
			t.Errorf("a device that refuses to capture (%v): captured %d times, closed %d", refuses, dev.captured, dev.closed)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}
