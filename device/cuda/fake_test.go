package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// fake is a GPU that does nothing but count: every handle it has given must come back.
// A call named in fail answers with an error.
type fake struct {
	mu    sync.Mutex
	log   []string
	fail  map[string]error
	held  map[string]int // handles by kind
	next  uint64
	last  driver.Launch
	slots []uint64 // parameters of the last launch
	// waited are the numbers streams were asked to wait for.
	waited []uint32
	// version of the compiler: another one per fake, so that nothing is shared through
	// the machine code this process has.
	version int
	knows   int // the driver: CUDA of this version
	// clusters are how many of a launch are resident at once; nil: none.
	clusters func(*driver.Launch) int
}

var fakes int

func newFake() *fake {
	fakes++
	return &fake{fail: map[string]error{}, held: map[string]int{}, next: 0x1000, version: fakes, knows: 13}
}

// call notes a call and gives what it is to answer.
func (f *fake) call(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, name)
	return f.fail[name]
}

// failing has a call answer with an error, nil for none. Kernels may be compiled meanwhile.
func (f *fake) failing(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[name] = err
}

// take and give count a handle.
func (f *fake) take(name, kind string) (uint64, error) {
	if err := f.call(name); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[kind]++
	f.next += 0x1000
	return f.next, nil
}

func (f *fake) give(name, kind string) error {
	err := f.call(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[kind]--
	return err
}

// leaks lists the kinds of handles that have not come back.
func (f *fake) leaks() (kinds []string) {
	for kind, n := range f.held {
		if n != 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, kind))
		}
	}
	slices.Sort(kinds)
	return kinds
}

const (
	fakeFree  = 8 << 30
	fakeTotal = 10 << 30
)

func (f *fake) libraries() *driver.Libraries {
	return &driver.Libraries{CUDA: f.cuda(), NVRTC: f.nvrtc(), BLAS: f.blas(), NVML: &driver.NVML{Used: func(string, int) (int64, bool) { return fakeTotal - fakeFree, true }}}
}

func (f *fake) cuda() *driver.CUDA {
	attributes := map[int]int{driver.Major: 9, driver.Minor: 0, driver.Multiprocessors: 132, driver.SharedPerBlock: 227 << 10, driver.ReachesHost: 1}
	return &driver.CUDA{
		Version:     func() (int, int, error) { return f.knows, 4, f.call("Version") },
		DeviceCount: func() (int, error) { return 1, f.call("DeviceCount") },
		DeviceName:  func(int) (string, error) { return "fake GPU", f.call("DeviceName") },
		Attribute:   func(_, which int) (int, error) { return attributes[which], f.call("Attribute") },
		Retain: func(int) (driver.Context, error) {
			h, err := f.take("Retain", "context")
			return driver.Context(h), err
		},
		Release:    func(int) error { return f.give("Release", "context") },
		SetCurrent: func(driver.Context) error { return f.call("SetCurrent") },
		MemoryInfo: func() (int64, int64, error) { return fakeFree, fakeTotal, f.call("MemoryInfo") },
		Alloc: func(int64) (driver.Pointer, error) {
			h, err := f.take("Alloc", "memory")
			return driver.Pointer(h), err
		},
		Free: func(driver.Pointer) error { return f.give("Free", "memory") },
		Register: func([]byte) error {
			_, err := f.take("Register", "registration")
			return err
		},
		Unregister: func([]byte) error { return f.give("Unregister", "registration") },
		Copy:       func(_, _ driver.Pointer, _ int64, _ driver.Stream) error { return f.call("Copy") },
		Fill:       func(driver.Pointer, byte, int64, driver.Stream) error { return f.call("Fill") },
		NewStream: func() (driver.Stream, error) {
			h, err := f.take("NewStream", "stream")
			return driver.Stream(h), err
		},
		CloseStream: func(driver.Stream) error { return f.give("CloseStream", "stream") },
		SyncStream:  func(driver.Stream, time.Duration) error { return f.call("SyncStream") },
		WaitEvent:   func(driver.Stream, driver.Event) error { return f.call("WaitEvent") },
		WaitValue: func(_ driver.Stream, _ driver.Pointer, value uint32) error {
			f.waited = append(f.waited, value)
			return f.call("WaitValue")
		},
		SyncEvent: func(driver.Event, time.Duration) error { return f.call("SyncEvent") },
		NewEvent: func() (driver.Event, error) {
			h, err := f.take("NewEvent", "event")
			return driver.Event(h), err
		},
		CloseEvent: func(driver.Event) error { return f.give("CloseEvent", "event") },
		Record:     func(driver.Event, driver.Stream) error { return f.call("Record") },
		Elapsed:    func(_, _ driver.Event) (time.Duration, error) { return time.Millisecond, f.call("Elapsed") },
		LoadModule: func([]byte) (driver.Module, error) {
			h, err := f.take("LoadModule", "module")
			return driver.Module(h), err
		},
		UnloadModule: func(driver.Module) error { return f.give("UnloadModule", "module") },
		Function:     func(driver.Module, string) (driver.Function, error) { return 1, f.call("Function") },
		Describe:     func(*driver.TensorMap, driver.Tiles) error { return f.call("Describe") },
		AllowShared:  func(driver.Function, int) error { return f.call("AllowShared") },
		PreferShared: func(driver.Function) error { return nil },
		Launch:       f.launch,
		Clusters: func(l *driver.Launch) (int, error) {
			if f.clusters == nil {
				return 0, f.call("Clusters")
			}
			return f.clusters(l), f.call("Clusters")
		},

		BeginCapture: func(driver.Stream) error { return f.call("BeginCapture") },
		EndCapture: func(driver.Stream) (driver.Graph, error) {
			h, err := f.take("EndCapture", "graph")
			return driver.Graph(h), err
		},
		LastNode: func(driver.Stream) (driver.GraphNode, error) { return 77, f.call("LastNode") },
		Instantiate: func(driver.Graph) (driver.GraphExec, error) {
			h, err := f.take("Instantiate", "replay")
			return driver.GraphExec(h), err
		},
		SetNode:        func(_ driver.GraphExec, _ driver.GraphNode, l *driver.Launch) error { return f.record("SetNode", l) },
		LaunchGraph:    func(driver.GraphExec, driver.Stream) error { return f.call("Replay") },
		CloseGraphExec: func(driver.GraphExec) error { return f.give("CloseReplay", "replay") },
		CloseGraph:     func(driver.Graph) error { return f.give("CloseNoted", "graph") },
	}
}

func (f *fake) launch(l *driver.Launch) error { return f.record("Launch", l) }

// record keeps the parameters of a launch.
func (f *fake) record(name string, l *driver.Launch) error {
	err := f.call(name)
	f.last, f.slots = *l, nil
	for _, p := range l.Params {
		f.slots = append(f.slots, *(*uint64)(p))
	}
	return err
}

func (f *fake) nvrtc() *driver.NVRTC {
	return &driver.NVRTC{
		Version: func() (int, int, error) { return 1000, f.version, nil },
		Compile: func(name, _ string, _ []string) ([]byte, error) { return []byte(name), f.call("Compile") },
	}
}

func (f *fake) blas() *driver.BLAS {
	return &driver.BLAS{
		Create: func() (driver.BLASHandle, error) {
			h, err := f.take("Create", "blas")
			return driver.BLASHandle(h), err
		},
		Destroy: func(driver.BLASHandle) error { return f.give("Destroy", "blas") },
		Prepare: func(driver.BLASHandle, driver.Gemm, driver.Batch, int64, int) (*driver.Prepared, []driver.Algorithm, error) {
			_, err := f.take("Prepare", "product")
			return &driver.Prepared{}, []driver.Algorithm{{Workspace: 512}}, err
		},
		Discard: func(*driver.Prepared) error { return f.give("Discard", "product") },
		SetBias: func(*driver.Prepared, driver.Pointer) error { return f.call("SetBias") },
		Run: func(_ driver.BLASHandle, _ *driver.Prepared, _, _, _, _, _ driver.Pointer, _ driver.Stream) error {
			return f.call("Run")
		},
	}
}

// dnn is a cuDNN that takes every graph.
func (f *fake) dnn() *driver.DNN {
	return &driver.DNN{
		Version: 91900,
		Create: func() (driver.DNNHandle, error) {
			h, err := f.take("CreateDNN", "dnn")
			return driver.DNNHandle(h), err
		},
		Destroy:   func(driver.DNNHandle) error { return f.give("DestroyDNN", "dnn") },
		SetStream: func(driver.DNNHandle, driver.Stream) error { return f.call("SetStream") },
		Prepare: func(driver.DNNHandle, *driver.DNNGraph) (*driver.GraphPlan, error) {
			if _, err := f.take("PrepareGraph", "graph"); err != nil {
				return nil, err
			}
			return &driver.GraphPlan{Workspace: 1000}, nil
		},
		Run: func(driver.DNNHandle, *driver.GraphPlan, []driver.Pointer, driver.Pointer) error {
			return f.call("RunGraph")
		},
		Discard: func(*driver.GraphPlan) error { return f.give("DiscardGraph", "graph") },
	}
}

// openFake opens a device of a fake GPU; at the end of the test everything must have
// come back.
func openFake(t *testing.T, f *fake, o Options) *Device {
	t.Helper()
	d, err := open(f.libraries(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
		if left := f.leaks(); len(left) > 0 {
			t.Errorf("not given back: %v", left)
		}
	})
	return d
}

// Whichever call of Open fails, the error says so and everything is given back.
func TestOpenGivesBackWhatItTook(t *testing.T) {
	good := newFake()
	openFake(t, good, Options{})
	tried := map[string]bool{}
	for _, name := range good.log {
		if tried[name] || name == "Compile" {
			continue
		}
		tried[name] = true
		f := newFake()
		f.failing(name, &driver.Error{Call: name, Code: 999, Name: "CUDA_ERROR_UNKNOWN", Text: "made up"})
		d, err := open(f.libraries(), Options{})
		if err == nil {
			t.Errorf("opened although %s failed", name)
			d.Close()
			continue
		}
		if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "CUDA_ERROR_UNKNOWN") {
			t.Errorf("%s: error %v names neither the call nor CUDA's word", name, err)
		}
		if left := f.leaks(); len(left) > 0 && name != "SetCurrent" {
			t.Errorf("%s: not given back: %v", name, left)
		}
	}
	if len(tried) < 8 {
		t.Errorf("only %d calls tried", len(tried))
	}
}

func TestOpenRefuses(t *testing.T) {
	for what, o := range map[string]Options{"there are 1 GPUs": {Ordinal: 3}, "limit": {Limit: fakeFree}} {
		f := newFake()
		if _, err := open(f.libraries(), o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%+v: got %v, want something about %q", o, err, what)
		}
		if left := f.leaks(); len(left) > 0 {
			t.Errorf("%+v: not given back: %v", o, left)
		}
	}
}

// An old driver is distinguished from a broken one, when a GPU is opened and when kernels
// cannot be loaded because their compiler is newer.
func TestOldDriver(t *testing.T) {
	f := newFake()
	f.knows = 11
	_, err := open(f.libraries(), Options{})
	var old *OldDriverError
	if !errors.As(err, &old) || old.Major != 11 || !strings.Contains(err.Error(), "CUDA 11.4, 12.0 is needed") || len(f.leaks()) > 0 {
		t.Errorf("got %v, left %v", err, f.leaks())
	}
	r := newRig(t, Options{})
	r.failing("LoadModule", &driver.Error{Call: "cuModuleLoadData", Code: 222, Name: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"})
	c, err := op.Make(op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.F32, Shape: shape.Of(64)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.d.Kernel(c); err == nil || !strings.Contains(err.Error(), "the driver knows 13.4: install a newer driver") {
		t.Errorf("got %v", err)
	}
}

func TestShareOfAGPU(t *testing.T) {
	whole, quarter := openFake(t, newFake(), Options{}).Info(), openFake(t, newFake(), Options{Share: 4}).Info()
	if whole.Limit != fakeFree-reserve || quarter.Limit != whole.Limit/4 {
		t.Errorf("limits %d and %d of %d free bytes", whole.Limit, quarter.Limit, int64(fakeFree))
	}
	if got := openFake(t, newFake(), Options{Host: 100 << 30}).Info().Limit; got != whole.Limit-200<<20 {
		t.Errorf("%d bytes are offered next to the page table of 100 GiB, %d without", got, whole.Limit)
	}
	if whole.Overhead != fakeTotal-fakeFree {
		t.Errorf("overhead %d", whole.Overhead)
	}
	if got := openFake(t, newFake(), Options{}).Footprint(3<<20+1, 1<<30); got != fakeTotal-fakeFree+4<<20+2<<20+firstRuns {
		t.Errorf("with 3 MiB and 1 GiB on the host the driver is expected to count %d", got)
	}
}

// What other programs have of a GPU does not count for this one: by NVML where it knows, else
// a context is taken to have its usual size.
func TestOtherProgramsDoNotCount(t *testing.T) {
	nvml := func(own int64, known bool) *driver.NVML {
		return &driver.NVML{Used: func(string, int) (int64, bool) { return own, known }}
	}
	for name, c := range map[string]struct {
		nvml *driver.NVML
		want int64
	}{
		"alone":               {nvml(fakeTotal-fakeFree, true), fakeTotal - fakeFree},
		"next to another":     {nvml(500<<20, true), 500 << 20},
		"in a container":      {nvml(0, false), typicalContext},
		"without the library": {nil, typicalContext},
	} {
		libraries := newFake().libraries()
		libraries.NVML = c.nvml
		d, err := open(libraries, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if used, err := d.Used(); used != c.want || d.Info().Overhead != c.want || err != nil {
			t.Errorf("%s: %d bytes, overhead %d, %v; want %d", name, used, d.Info().Overhead, err, c.want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	libraries := newFake().libraries() // the other program ends once this one has more than is left without it
	own := int64(fakeTotal - fakeFree)
	libraries.NVML = &driver.NVML{Used: func(string, int) (int64, bool) { return own, true }}
	own = 500 << 20
	d, err := open(libraries, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := d.Alloc(600 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	own = fakeTotal - fakeFree
	if used, err := d.Used(); used != own || err != nil {
		t.Errorf("once the other program has ended %d bytes, %v; want %d", used, err, own)
	}
}

func TestParse(t *testing.T) {
	for config, want := range map[string]Options{
		"":               {},
		"1":              {Ordinal: 1},
		"0/4,limit=1GiB": {Share: 4, Limit: 1 << 30},
		"2,tf32":         {Ordinal: 2, TF32: true},
		",tf32":          {TF32: true},
	} {
		got, err := parse(config)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q gives %+v, %v, want %+v", config, got, err, want)
		}
	}
	for _, config := range []string{"x", "-1", "0/0", "0/x", "0,limit=much", "0,colour=red"} {
		if _, err := parse(config); err == nil {
			t.Errorf("%q was accepted", config)
		}
	}
}

var errMadeUp = errors.New("made up")

// "There is no such GPU" is distinguished from "it does not work", in a few words.
func TestAbsent(t *testing.T) {
	for want, err := range map[string]error{
		"no NVIDIA driver found":                &driver.MissingError{Names: []string{"libcuda.so.1"}},
		"no libnvrtc.so.13 found; install it":   &driver.MissingError{Names: []string{"libnvrtc.so.13"}, How: "install it"},
		"no NVIDIA GPU found":                   &driver.Error{Code: driver.NoDevice},
		"there are 2 GPUs; the first is cuda:0": &NoGPUError{GPUs: 2},
	} {
		var none *device.AbsentError
		if got := absent(fmt.Errorf("opening: %w", err)); !errors.As(got, &none) || none.Reason != want || !errors.Is(got, err) {
			t.Errorf("%v becomes %v, want %q", err, got, want)
		}
	}
	var none *device.AbsentError
	if err := absent(&driver.Error{Call: "cuInit", Code: 999}); errors.As(err, &none) {
		t.Errorf("a GPU that does not work is absent: %v", err)
	}
}
