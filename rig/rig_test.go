package rig

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/cpu/kernel"
	"spillway/machine"
	"spillway/units"
)

// fakeDriver opens devices that compute on the CPU and say that they are GPUs.
type fakeDriver struct {
	gpus   int
	broken error
	opened []string // configurations
}

var fakes = &fakeDriver{}

func init() {
	device.Register("fake", fakes)
	watchTime = 10 * time.Millisecond
}

func (f *fakeDriver) Open(config string, _ device.Options) (device.Device, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	ordinal, option, _ := strings.Cut(config, ",")
	n, err := strconv.Atoi(ordinal)
	if err != nil || option != "" && option != "tf32" {
		return nil, fmt.Errorf("configuration %q", config)
	}
	if n >= f.gpus {
		return nil, &device.AbsentError{Reason: fmt.Sprintf("there are %d GPUs", f.gpus)}
	}
	f.opened = append(f.opened, config)
	return &fakeGPU{rounding{Device: cpu.Open(cpu.Options{Limit: int64(n+1) << 30}), on: option != ""}, n}, nil
}

type fakeGPU struct {
	rounding
	ordinal int
}

const fakeTotal = 24564 << 20

func (g *fakeGPU) Model() string            { return "NVIDIA GeForce RTX 4090" }
func (g *fakeGPU) Address() (string, error) { return fmt.Sprintf("00000000:%02x:00.0", g.ordinal), nil }
func (g *fakeGPU) Memory() (free, total int64, err error) {
	now, _ := g.Allocated()
	return fakeTotal - 500<<20 - now, fakeTotal, nil
}

func (g *fakeGPU) Used() (int64, error) {
	now, _ := g.Allocated()
	return 500<<20 + now, nil
}

func (g *fakeGPU) Footprint(onDevice, host int64) int64 {
	now, _ := g.Allocated()
	return 500<<20 + now + onDevice + host/512
}

func (g *fakeGPU) Info() device.Info {
	i := g.Device.Info()
	i.Name, i.OnHost = fmt.Sprintf("fake:%d", g.ordinal), false
	return i
}

// fakeComputer has so many GPUs, whose opening is written down.
func fakeComputer(n int) *fakeDriver {
	*fakes = fakeDriver{gpus: n}
	return fakes
}

// quick options measure next to nothing, of a computer of files under testdata.
func quick() Options {
	return Options{System: fake("v2"), sizes: hostSizes{copyBytes: 256 * units.KiB, diskBytes: 16 * units.MiB, matmul: 32, params: 1 << 12, grid: grid{Sides: []int64{16}}}}
}

func TestSplitNames(t *testing.T) {
	for text, want := range map[string][]string{
		"":                         {"auto"},
		"auto":                     {"auto"},
		"all":                      {"all"},
		"cpu":                      {"cpu"},
		"cpu,cpu":                  {"cpu", "cpu"},
		"cpu:threads=2,link=1GB/s": {"cpu:threads=2,link=1GB/s"},
		"fake:0/2,fake:0/2":        {"fake:0/2", "fake:0/2"},
		"fake:0,fake:1,tf32":       {"fake:0,tf32", "fake:1,tf32"},
		"fake,tf32":                {"fake:,tf32"},
		"cpu,avx2":                 {"cpu:,avx2"},
	} {
		if got := splitNames(text); !slices.Equal(got, want) {
			t.Errorf("%q is split into %q, want %q", text, got, want)
		}
	}
	fakeComputer(2)
	for _, names := range []string{"gpu", "fake:-1,x", "fake:x", "cpu,fake:0", "fake:0,", "tpu:1", "tf32", "cpu,tf32"} {
		if r, err := Open(names, quick()); err == nil {
			t.Errorf("%q opens %d devices", names, len(r.Devices))
		}
	}
}

// Without a name the first GPU is taken, and without a GPU the CPU, with a reason.
func TestFirstDevice(t *testing.T) {
	f := fakeComputer(2)
	r, err := Open("", quick())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if d := r.Machine.Devices[0]; d.Kind != machine.GPU || d.Model != "rtx4090" || d.Memory != fakeTotal || r.Reason == "" || !slices.Equal(f.opened, []string{"0"}) {
		t.Errorf("%+v because %q, opened %q", d, r.Reason, f.opened)
	}
	fakeComputer(0)
	none, err := Open("auto", quick())
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if none.Machine.Devices[0].Kind != machine.CPU || !slices.Contains(none.Machine.Notes, "device: CPU (there are 0 GPUs)") {
		t.Errorf("%+v because %q", none.Machine.Devices, none.Reason)
	}
	fakes.broken = errors.New("the GPU fell off the bus")
	if _, err := Open("", quick()); err == nil || !strings.Contains(err.Error(), "fell off the bus") {
		t.Errorf("a GPU that does not work: %v", err)
	}
	o := quick()
	o.Drivers = []string{}
	elsewhere, err := Open("", o)
	if err != nil || elsewhere.Machine.Devices[0].Kind != machine.CPU {
		t.Errorf("a broken GPU that nobody looks for: %v", err)
	}
	elsewhere.Close()
}

// All GPUs are opened, the largest first, and can be opened again.
func TestAllDevices(t *testing.T) {
	f := fakeComputer(2)
	r, err := Open("all", quick())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Devices) != 2 || len(r.Machine.Devices) != 3 || r.Machine.Devices[0].Name != "fake:1" || r.Machine.Devices[2].Name != "cpu0" {
		t.Errorf("devices %+v", r.Machine.Devices)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Reopen(); err != nil || len(r.Devices) != 2 || len(f.opened) != 4 {
		t.Errorf("opened %q, %v", f.opened, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// Shares of a GPU are devices of different names, whose driver counts them once.
func TestShares(t *testing.T) {
	fakeComputer(1)
	r, err := Open("fake:0,fake:0", quick())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Machine.Devices[1].Name != "fake:0.1" {
		t.Errorf("devices %+v", r.Machine.Devices)
	}
	if used, err := r.DriverUsed(); err != nil || used != 500<<20 {
		t.Errorf("the driver counts %d, %v", used, err)
	}
	if got := r.Footprint([]int64{10, 20}, 1024); got != 500<<20+30+2 {
		t.Errorf("the driver is expected to count %d", got)
	}
}

// What measuring holds is given back before a run allocates, so that it is not predicted for the run.
func TestFootprintLeavesMeasuringOut(t *testing.T) {
	fakeComputer(1)
	r, err := Open("fake:0", quick())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	m, err := r.Devices[0].Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	own := r.host
	r.host = &hostCalls{bench: &hostBench{to: m}}
	got := r.Footprint([]int64{10}, 1024)
	r.host = own
	if err := m.Free(); err != nil || got != 500<<20+10+2 {
		t.Errorf("the driver is expected to count %d, %v", got, err)
	}
}

// The option tf32 holds for all devices, and their description has its rates.
func TestTF32Option(t *testing.T) {
	f := fakeComputer(2)
	r, err := Open("fake:0,fake:1,tf32", quick())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d := r.Machine.Devices[1]
	if !slices.Equal(f.opened, []string{"0,tf32", "1,tf32"}) || d.Compute.F32 != d.Compute.TF32 {
		t.Errorf("opened %q, %+v", f.opened, d.Compute)
	}
}

// Several devices of the CPU share its rates.
func TestSharedCPU(t *testing.T) {
	one, err := Open("cpu0", quick())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := OpenList([]string{"cpu:threads=1", "cpu:threads=1"}, Options{System: fake("v2"), sizes: quick().sizes})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	a, b := one.Machine.Devices, two.Machine.Devices
	if len(a) != 1 || len(b) != 2 || b[1].Name != "cpu1" || b[0].Compute.F32 != a[0].Compute.F32/2 || !b[0].Shared {
		t.Errorf("%+v and %+v", a, b)
	}
}

// Kernels that were asked for are shown, with the instruction sets they use, and their rates are cached by themselves.
func TestChosenKernels(t *testing.T) {
	plain, err := Open("cpu", quick())
	if err != nil {
		t.Fatal(err)
	}
	before, rates := callKey(plain.Devices[0]), ratesKey(plain.Machine)
	if err := plain.Close(); err != nil || plain.Reason != "" {
		t.Fatal(plain.Reason, err)
	}
	if kernel.Name() == "portable" {
		t.Skip("this CPU has portable kernels alone")
	}
	r, err := Open("cpu:portable", quick())
	if err != nil {
		t.Fatal(err)
	}
	if note := "device: CPU (kernels of portable)"; r.Reason != "kernels of portable" || !slices.Contains(r.Machine.Notes, note) || len(r.Machine.Host.Features) > 0 {
		t.Errorf("reason %q, notes %q, instruction sets %q", r.Reason, r.Machine.Notes, r.Machine.Host.Features)
	}
	if callKey(r.Devices[0]) == before || ratesKey(r.Machine) == rates {
		t.Error("times of other kernels are cached under the same key")
	}
	if err := r.Close(); err != nil || kernel.Chosen() != "" {
		t.Errorf("after closing, kernels of %q; %v", kernel.Chosen(), err)
	}
	has := []string{"avx2", "fma", "avx512f", "avx512_bf16", "amx_tile"}
	if got := usedFeatures(has, "avx2"); !slices.Equal(got, []string{"avx2", "fma"}) {
		t.Errorf("kernels of avx2 use %q", got)
	}
}

// A machine that is given is taken as it is.
func TestGivenMachine(t *testing.T) {
	m, err := machine.Parse("cpu:1GiB,host:4GiB")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open("cpu", Options{Machine: m})
	if err != nil || r.Machine.String() != m.String() || len(r.Devices) != 1 {
		t.Errorf("%v, %v", r.Machine, err)
	}
	r.Close()
}

// A rig that assumes rates measures nothing until it is asked to, and then no more than it is
// asked for. Whoever is stopped stores nothing.
func TestRatesAreAssumedAtFirst(t *testing.T) {
	o := quick()
	o.Cache, o.Assume = t.TempDir(), true
	measured, stop := timesMeasured(&o), errors.New("enough")
	r, err := Open("cpu", o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sources := func() [2]machine.Source {
		d := r.Machine.Devices[0]
		return [2]machine.Source{d.Sources["bandwidth"], d.Sources["f32"]}
	}
	if got := sources(); *measured > 0 || got != [2]machine.Source{machine.Assumed, machine.Assumed} {
		t.Errorf("opened: %d measurements, sources %v", *measured, got)
	}
	if err := r.Measure(false); err != nil || sources() != [2]machine.Source{machine.Measured, machine.Assumed} {
		t.Errorf("copies alone: %v, sources %v", err, sources())
	}
	asked := 0
	r.o.Stop = func() error {
		if asked++; asked > 2 {
			return stop
		}
		return nil
	}
	before := r.Machine
	if err := r.Measure(true); !errors.Is(err, stop) || asked > 12 || r.Machine.Devices[0].Bandwidth != before.Devices[0].Bandwidth {
		t.Errorf("stopped: %v, asked %d times", err, asked)
	}
	if files, _ := filepath.Glob(filepath.Join(o.Cache, "*")); len(files) > 0 {
		t.Errorf("stored in %v", files)
	}
	r.o.Stop = nil
	if err := r.Measure(true); err != nil || sources() != [2]machine.Source{machine.Measured, machine.Measured} {
		t.Errorf("everything: %v, sources %v", err, sources())
	}
}
