package probe

import (
	"encoding/binary"
	"maps"
	"math"
	"os"
	"reflect"
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

// smallGrid takes a processor some milliseconds.
var smallGrid = Grid{
	Sides: []int64{8, 32}, Positions: []int64{8, 16}, Heads: []int64{2}, Head: []int64{16},
	Rows: []int64{4, 8}, Vocabulary: []int64{vocabulary}, Width: []int64{32}, Lines: []int64{2, 8}, Line: 128,
}

func measured(t *testing.T) Rates {
	t.Helper()
	dev, host := cpu.Open(cpu.Options{Threads: 1}), cpu.Open(cpu.Options{Threads: 1})
	told := 0
	r, err := Measure(dev, Sizes{Copy: units.MiB, Side: 64, Grid: smallGrid, Sustained: 10 * time.Millisecond, Host: host, Params: 1 << 20, Report: func(string) { told++ }})
	if err != nil {
		t.Fatal(err)
	}
	if told < 5 {
		t.Errorf("%d measurements were told of", told)
	}
	for _, d := range []*cpu.Device{dev, host} {
		if err := d.Close(); err != nil { // tells what was left
			t.Error(err)
		}
	}
	return r
}

// Every rate lies where a processor's can be, and one thread is no card.
func TestMeasure(t *testing.T) {
	r := measured(t)
	for name, rate := range map[string]units.Rate{"in": r.In, "out": r.Out, "both": r.Both, "traffic": r.HostBandwidth, "bandwidth": r.Bandwidth} {
		if rate < 50e6 || rate > 1e12 {
			t.Errorf("%s is %v", name, rate)
		}
	}
	for _, rate := range []units.Flops{r.Compute.F32, r.Sustained.F32} {
		if rate < 50e6 || rate > 1e12 {
			t.Errorf("products run at %v", rate)
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
	for name, d := range map[string]time.Duration{"launch": r.Launch, "latency": r.Latency} {
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

func TestDeviceTakesMeasuredRates(t *testing.T) {
	r := Rates{In: 55e9, Out: 54e9, Both: 100e9, Bandwidth: 4e12, Launch: time.Microsecond}
	r.Compute.F32, r.Compute.BF16, r.Sustained.BF16 = 50e12, 700e12, 600e12
	before := machine.Sources{"memory": machine.Measured}
	d := r.Device(machine.Device{Memory: 7, Sources: before})
	if d.Memory != 7 || d.Link.In != 55e9 || d.Link.Bidirectional != 100./109 || d.Compute.BF16 != 700e12 || d.Sources["bf16"] != machine.Measured || d.Sustained.BF16 != 600e12 {
		t.Errorf("%+v", d)
	}
	if _, claimed := d.Sources["tf32"]; claimed || len(before) != 1 {
		t.Errorf("sources %v of %v", d.Sources, before)
	}
	for both, want := range map[units.Rate]machine.Bidirectional{0: 0.9, 50e9: machine.HalfDuplex, 110e9: machine.FullDuplex} {
		r.Both = both
		if got := r.Device(machine.Device{Link: machine.Link{Bidirectional: 0.9}}).Link.Bidirectional; got != want {
			t.Errorf("a link that carries %v both ways has the duplex %v, want %v", both, got, want)
		}
	}
}

func TestKeep(t *testing.T) {
	dir, r := t.TempDir(), Rates{In: 1, Out: 2, Both: 3, Bandwidth: 4, At: time.Unix(1000, 0).UTC()}
	r.Compute.F32 = 5
	r.Tables = machine.Tables{"bf16": {{Kind: op.Add}: {Axes: [][]int64{{1, 2}}, Rates: []float64{3, 4}}}}
	if _, ok, err := Load(dir, "a card"); ok || err != nil {
		t.Errorf("nothing is kept, but %v, %v", ok, err)
	}
	if err := Store(dir, "a card", r); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := Load(dir, "a card"); !ok || err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("kept %+v, got %+v, %v, %v", r, got, ok, err)
	}
	if _, ok, _ := Load(dir, "another"); ok {
		t.Error("another card has the rates of the first")
	}
	if err := os.WriteFile(cachePath(dir, "a card"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := Load(dir, "a card"); ok || err == nil {
		t.Error("a damaged file was believed")
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
	before := slices.Clone(w.launch.Buffers[0].Host())
	if _, err := w.row(1); err != nil {
		t.Fatal(err)
	}
	after := w.launch.Buffers[0].Host()
	if slices.Equal(after, before) {
		t.Error("no weight changed: nothing was updated")
	}
	for i := 0; i < len(after); i += 4 {
		if x := math.Float32frombits(binary.LittleEndian.Uint32(after[i:])); x != x {
			t.Fatalf("weight %d became NaN, which updates of a training do not make", i/4)
		}
	}
}

// noting is a device that notes what its queues are given, and repeats it in hardly any time; or
// one that refuses to.
type noting struct {
	device.Device
	refuses       bool
	noted, closed int
}

func (n *noting) Capture([]device.Queue, func() error) (device.Graph, error) {
	if n.refuses {
		return nil, device.ErrNotCapturable
	}
	n.noted++
	return (*repeat)(n), nil
}

type repeat noting

func (r *repeat) Launch() error {
	time.Sleep(time.Microsecond) // longer than no time, by any clock
	return nil
}

func (r *repeat) Close() error {
	r.closed++
	return nil
}

// slowHand is a device whose queues take long to be given something, and none to do it.
type slowHand struct{ noting }

func (s *slowHand) Queue(name string) (device.Queue, error) { return &slowQueue{}, nil }

type slowQueue struct{ device.Queue }

func (*slowQueue) Launch(device.Kernel, *device.Launch) error {
	time.Sleep(100 * time.Microsecond)
	return nil
}

func (*slowQueue) Copy(_, _ device.Buffer) error { return nil }
func (*slowQueue) Sync() error                   { return nil }
func (*slowQueue) Close() error                  { return nil }

// A call is noted where the device waits for it to be handed over, and nowhere else.
func TestOnlyAwaitedCallsAreNoted(t *testing.T) {
	quick := &noting{Device: cpu.Open(cpu.Options{Threads: 1})}
	slow := &slowHand{noting{Device: quick.Device}}
	for dev, notes := range map[device.Device]*int{quick: &quick.noted, slow: &slow.noted} {
		if _, err := Matmul(dev, dtype.F32, 256); err != nil {
			t.Fatal(err)
		}
		if (*notes > 0) != (dev == device.Device(slow)) {
			t.Errorf("%T: noted %d times", dev, *notes)
		}
	}
	if err := quick.Close(); err != nil {
		t.Error(err)
	}
}

// Small kernels are timed without what handing them over takes, where the device can.
func TestKernelsAreTimedUnhanded(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		dev := &noting{Device: cpu.Open(cpu.Options{Threads: 1}), refuses: refuses}
		var r Rates
		if err := r.measureLaunches(dev); err != nil {
			t.Fatal(err)
		}
		if r.Launch <= 0 || r.Kernel >= r.Launch || (r.Kernel > 0) == refuses {
			t.Errorf("a device that refuses to note (%v): %v to hand over, %v by itself", refuses, r.Launch, r.Kernel)
		}
		if dev.noted != dev.closed || (dev.noted > 0) == refuses {
			t.Errorf("a device that refuses to note (%v): noted %d times, closed %d", refuses, dev.noted, dev.closed)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}
