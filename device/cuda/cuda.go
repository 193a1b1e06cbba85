// Package cuda is an NVIDIA GPU as a device. Its libraries are opened when a device
// is (package driver), so a program that contains this package starts anywhere; where
// a library is missing, Open says which and how to get it.
//
// Open it as "cuda" or "cuda:1", or with more of a configuration:
// "cuda:0,limit=8GiB,tf32". "cuda:0/4" is a quarter of the GPU: several logical
// devices can share one GPU, each with memory and queues of its own.
//
// A queue is a stream. A call becomes a short list of launches, prepared when the kernel is
// asked for: sizes and scratch memory are known then, so that a launch only fills in
// addresses and the numbers of the iteration. Our own kernels are CUDA C++ in the folder
// kernels, compiled by NVRTC for the exact GPU at first use; matmuls are cuBLASLt's, and
// attention is cuDNN's where that is installed and faster. The file of a kernel registers it;
// nothing lists them all.
//
// Every sum has one fixed order: the same call on the same GPU gives the same bits. Updates of
// weights, except Adafactor's, give the bits of package cpu, so that a plan may choose either.
// Which algorithm computes a call follows from the call and the machine, never from a plan;
// what was chosen by timing stays in the cache folder.
//
// A whole iteration can be captured as a CUDA graph and launched with one call
// (device.GraphCapturer), which is several times faster for small models.
package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
)

func init() { device.Register("cuda", opener{}) }

// alignment of buffers, that of the driver's own allocations.
const alignment = 256

// reserve is memory that Alloc leaves free for the code of kernels, which the driver loads
// when a kernel is first prepared or first run.
const reserve = 192 << 20

// page is the granularity in which the driver allocates memory of the GPU.
const page = 2 << 20

// Device is a GPU, or a share of one.
type Device struct {
	options Options
	lib     *driver.Libraries
	name    string
	gpu     gpuInfo
	context driver.Context
	blas    driver.BLASHandle
	limit   int64
	others  int64 // bytes of the GPU that other programs had when it was opened
	origin  driver.Event

	modules modules
	choices algorithmChoices
	dnn     dnn
	// plainly: what tests turn off to compare; tile is one more than the form of tiles, 0 for the best; thick: fast
	// matmuls of tens of rows are cuBLASLt's; clusters: a block draws all of a row.
	plainly struct {
		launches, copies, thick, clusters bool
		tile                              int
		attend                            *attendForm // of few rows that are not exact
	}

	copying     sync.Mutex
	copyKernels map[int64]*kernelLaunch // by bytes, see copyKernel

	joined  atomic.Bool // queues of other backends have waited for this device
	mu      sync.Mutex
	closed  bool
	scratch int64 // most bytes that timing algorithms takes; 0 is no limit
	held    int64 // bytes Alloc has given
	paged   int64 // the same in whole pages
	peak    int64 // the most it had since it had nothing
	live    map[*memory]bool
	queues  map[*queue]bool
	gemms   []*driver.Prepared
	events  []driver.Event // all there are
	spare   spareEvents
	lost    error // what ended the context
}

// gpuInfo describes the hardware.
type gpuInfo struct {
	name            string
	major, minor    int
	multiprocessors int
	shared          int  // most bytes of shared memory of a block
	reachesHost     bool // kernels find page-locked memory where the CPU does
}

// NoGPUError says that there is no GPU of the number asked for.
type NoGPUError struct {
	GPUs int // there are
}

func (e *NoGPUError) Error() string {
	return fmt.Sprintf("there are %d GPUs; the first is cuda:0", e.GPUs)
}

// OldDriverError says that the driver knows only an older CUDA than is needed.
type OldDriverError struct {
	Major, Minor int // that it knows
}

// minCUDA is the oldest version of CUDA whose driver has every function we call.
const minCUDA = 12

func (e *OldDriverError) Error() string {
	return fmt.Sprintf("the driver knows CUDA %d.%d, %d.0 is needed; install a newer driver", e.Major, e.Minor, minCUDA)
}

// Open opens a device.
func Open(o Options) (*Device, error) {
	lib, err := driver.Load(o.SearchPaths)
	if err != nil {
		return nil, fmt.Errorf("opening GPU %d: %w", o.Ordinal, err)
	}
	return open(lib, o)
}

// open opens a device with given libraries. Where it fails, it frees what it has made.
func open(lib *driver.Libraries, o Options) (d *Device, err error) {
	d = &Device{options: o, lib: lib, name: fmt.Sprintf("cuda:%d", o.Ordinal), live: map[*memory]bool{}, queues: map[*queue]bool{},
		modules: modules{loaded: map[unit]*module{}, begun: map[dtype.Type]bool{}},
		choices: algorithmChoices{made: map[string]int{}, loaded: map[loadedAlgorithm]bool{}}}
	if err = checkDriver(lib.CUDA, o.Ordinal); err == nil {
		d.context, err = lib.CUDA.Retain(o.Ordinal)
	}
	if err != nil {
		return nil, fmt.Errorf("opening GPU %d: %w", o.Ordinal, err)
	}
	if err := d.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening GPU %d: %w", o.Ordinal, err), d.Close())
	}
	return d, nil
}

// checkDriver refuses a driver that is too old, and a GPU that does not exist.
func checkDriver(c *driver.CUDA, ordinal int) error {
	major, minor, err := c.Version()
	if err == nil && major < minCUDA {
		err = &OldDriverError{major, minor}
	}
	if err != nil {
		return err
	}
	n, err := c.DeviceCount()
	if err == nil && ordinal >= n {
		err = &NoGPUError{GPUs: n}
	}
	return err
}

// start queries the GPU and its free memory.
func (d *Device) start() (err error) {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if err := d.describe(); err != nil {
		return err
	}
	if d.blas, err = d.lib.BLAS.Create(); err != nil {
		return err
	}
	if d.origin, err = d.lib.CUDA.NewEvent(); err != nil {
		return err
	}
	if err := d.lib.CUDA.Record(d.origin, 0); err != nil {
		return err
	}
	free, total, err := d.lib.CUDA.MemoryInfo()
	if err != nil {
		return err
	}
	d.others = d.usedByOthers(total - free)
	d.limit = max(0, free-reserve-paged(d.options.Host/hostShare)) / int64(max(1, d.options.Share))
	if d.options.Limit > d.limit {
		return fmt.Errorf("a limit of %d bytes asked for, %d of %d can be had; ask for less or end what holds the rest", d.options.Limit, d.limit, total)
	}
	if d.options.Limit > 0 {
		d.limit = d.options.Limit
	}
	return nil
}

func (d *Device) describe() (err error) {
	if d.gpu.name, err = d.lib.CUDA.DeviceName(d.options.Ordinal); err != nil {
		return err
	}
	var reaches int
	for attribute, to := range map[int]*int{
		driver.Major: &d.gpu.major, driver.Minor: &d.gpu.minor,
		driver.Multiprocessors: &d.gpu.multiprocessors, driver.SharedPerBlock: &d.gpu.shared, driver.ReachesHost: &reaches,
	} {
		if *to, err = d.lib.CUDA.Attribute(d.options.Ordinal, attribute); err != nil {
			return err
		}
	}
	d.gpu.reachesHost = reaches != 0
	if d.gpu.major < 8 {
		return fmt.Errorf("%s has compute capability %d.%d, and 8.0 is needed, of the Ampere generation (A10, RTX 3060 and newer)", d.gpu.name, d.gpu.major, d.gpu.minor)
	}
	return nil
}

// enter makes the GPU's context current on this goroutine's thread until leave.
func (d *Device) enter() error {
	runtime.LockOSThread()
	if err := d.lib.CUDA.SetCurrent(d.context); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("%s: %w", d.name, err)
	}
	return nil
}

func (d *Device) leave() { runtime.UnlockOSThread() }

// Info describes the device. The overhead is what the driver counts of this program now other
// than what Alloc has given: the context, and the kernels prepared so far.
func (d *Device) Info() device.Info {
	i := device.Info{Name: d.name, Limit: d.limit, Alignment: alignment}
	used, err := d.Used()
	if err != nil { // a lost context, of which the next Sync tells
		return i
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i.Overhead = max(0, used-d.paged)
	return i
}

// Model is the name of the hardware: "NVIDIA H200".
func (d *Device) Model() string { return d.gpu.name }

// Address of the GPU on the PCI bus, as other tools name it: "00000000:1b:00.0".
func (d *Device) Address() (string, error) {
	var at [3]int
	for i, attribute := range []int{driver.PCIDomain, driver.PCIBus, driver.PCIDevice} {
		var err error
		if at[i], err = d.lib.CUDA.Attribute(d.options.Ordinal, attribute); err != nil {
			return "", fmt.Errorf("%s: asking for its address: %w", d.name, err)
		}
	}
	return fmt.Sprintf("%08x:%02x:%02x.0", at[0], at[1], at[2]), nil
}

// Kernel prepares a call.
func (d *Device) Kernel(call op.Call) (device.Kernel, error) {
	if err := call.Check(); err != nil {
		return nil, fmt.Errorf("%s: a kernel for %v: %w", d.name, call.Kind, err)
	}
	p, err := d.prepare(call)
	var reason unsupported
	if errors.As(err, &reason) {
		return nil, &device.NoKernelError{Device: d.name, Call: call, Reason: string(reason)}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: a kernel for %v: %w", d.name, call, err)
	}
	e, _ := entryOf(call.Kind)
	return &preparedKernel{device: d, call: call, program: p, unaligned: e.unaligned}, nil
}

// Close ends the queues and frees what is left. The error names memory that was not
// freed.
func (d *Device) Close() error {
	d.mu.Lock()
	queues, live, closed := d.queues, d.live, d.closed
	d.closed, d.queues, d.live = true, nil, nil
	d.mu.Unlock()
	if closed {
		return nil
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	var errs []error
	for q := range queues {
		errs = append(errs, q.end())
	}
	for m := range live {
		errs = append(errs, fmt.Errorf("%s: %d bytes of %s memory: %w", d.name, m.size, m.kind(), device.ErrLeak), m.release())
	}
	return errors.Join(append(errs, d.quiet(d.discard()))...)
}

// discard releases all handles.
func (d *Device) discard() error {
	var errs []error
	for _, p := range d.gemms {
		errs = append(errs, d.lib.BLAS.Discard(p))
	}
	if d.lib.DNN != nil {
		errs = append(errs, d.dnn.end(d.lib.DNN))
	}
	if d.blas != 0 {
		errs = append(errs, d.lib.BLAS.Destroy(d.blas))
	}
	if d.origin != 0 {
		errs = append(errs, d.lib.CUDA.CloseEvent(d.origin))
	}
	for _, e := range d.events {
		errs = append(errs, d.lib.CUDA.CloseEvent(e))
	}
	return errors.Join(append(errs, d.modules.unload(d), d.lib.CUDA.Release(d.options.Ordinal))...)
}

// quiet drops errors after the context was lost: every call then returns the error that was
// reported already.
func (d *Device) quiet(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil {
		return nil
	}
	return err
}
