package driver

import (
	"time"
	"unsafe"

	"spillway/internal/dl"
	"spillway/internal/stopwatch"
)

// Handles of the driver.
type (
	Context  uintptr
	Stream   uintptr
	Event    uintptr
	Module   uintptr
	Function uintptr
	// Pointer is an address on the device, or of registered host memory.
	Pointer uint64
)

// Attributes of a device.
const (
	Multiprocessors = 16
	PCIBus          = 33
	PCIDevice       = 34
	PCIDomain       = 50
	Major           = 75 // of the compute capability
	Minor           = 76
	ReachesHost     = 91 // 1: registered host memory has one address for the CPU and the GPU
	SharedPerBlock  = 97 // most shared memory of a block, in bytes
)

// Launch says how a kernel runs.
type Launch struct {
	Function    Function
	Grid, Block [3]uint32
	Shared      uint32 // bytes of dynamic shared memory
	Stream      Stream
	// Early: the kernel may begin before the one in front of it in the stream has ended,
	// and waits for it itself (programmatic dependent launch).
	Early bool
	// Cluster is how many blocks share a cluster, on GPUs that have them; 0 and 1 are none.
	Cluster uint32
	// Params are the addresses of the kernel's parameters, in memory that does not
	// move.
	Params *[MaxParams]unsafe.Pointer
}

// launchConfig is CUlaunchConfig, and launchAttribute CUlaunchAttribute.
type (
	launchConfig struct {
		grid, block [3]uint32
		shared      uint32
		stream      Stream
		attributes  *launchAttribute
		count       uint32
	}
	launchAttribute struct {
		id    uint32
		_     uint32
		value [16]uint32
	}
)

// TensorMap is CUtensorMap, a parameter of kernels. It begins at a multiple of 64 bytes.
type TensorMap [128]byte

// Tiles is a matrix of 16-bit elements, stored row by row, that the copy engine brings to shared memory in tiles. What lies outside
// of it is zeros there, and 16 bytes of a row are exchanged as wgmma wants them (128-byte swizzle).
type Tiles struct {
	Address       Pointer
	Float16       bool // or bfloat16
	Rows, Columns int64
	Step          int64 // bytes from a row to the next
	High, Wide    uint32
}

// MaxParams is the most parameters a kernel has.
const MaxParams = 48

// CUDA is the driver.
type CUDA struct {
	// Version is the newest CUDA the driver knows: 13, 0.
	Version     func() (major, minor int, err error)
	DeviceCount func() (int, error)
	DeviceName  func(ordinal int) (string, error)
	Attribute   func(ordinal, attribute int) (int, error)

	// Retain makes the device's primary context, which all libraries of the process
	// share, or counts one more user of it.
	Retain     func(ordinal int) (Context, error)
	Release    func(ordinal int) error
	SetCurrent func(Context) error

	MemoryInfo func() (free, total int64, err error)
	Alloc      func(bytes int64) (Pointer, error)
	Free       func(Pointer) error
	Register   func(host []byte) error // page-locks memory outside the Go heap
	Unregister func(host []byte) error

	Copy func(dst, src Pointer, bytes int64, s Stream) error
	Fill func(dst Pointer, value byte, bytes int64, s Stream) error

	NewStream   func() (Stream, error)
	CloseStream func(Stream) error
	SyncStream  func(Stream, time.Duration) error // polls so long, then sleeps
	WaitEvent   func(Stream, Event) error
	// WaitValue holds the stream until the 32-bit number at an address is at least a value,
	// modulo 2^32.
	WaitValue func(s Stream, at Pointer, value uint32) error

	NewEvent   func() (Event, error)
	CloseEvent func(Event) error
	SyncEvent  func(Event, time.Duration) error // returns when its latest record has happened; polls as SyncStream
	Record     func(Event, Stream) error
	Elapsed    func(from, to Event) (time.Duration, error)

	LoadModule   func(image []byte) (Module, error)
	UnloadModule func(Module) error
	Function     func(m Module, name string) (Function, error)
	AllowShared  func(f Function, bytes int) error
	PreferShared func(f Function) error // as much of the memory of a multiprocessor as can be
	Launch       func(*Launch) error
	Clusters     func(*Launch) (int, error) // how many of a launch are resident at once where nothing else runs
	// Describe writes what the copy engine needs to know of a matrix; nil where the driver is too old for it.
	Describe func(*TensorMap, Tiles) error

	// BeginCapture makes a stream, and those that wait for it, record what they are given
	// as a graph until EndCapture. LastNode is the node of what a stream was given last.
	BeginCapture func(Stream) error
	EndCapture   func(Stream) (Graph, error)
	LastNode     func(Stream) (GraphNode, error)
	// Instantiate makes a graph executable, SetNode changes the parameters of a kernel node,
	// and LaunchGraph launches the whole.
	Instantiate    func(Graph) (GraphExec, error)
	SetNode        func(GraphExec, GraphNode, *Launch) error
	LaunchGraph    func(GraphExec, Stream) error
	CloseGraphExec func(GraphExec) error
	CloseGraph     func(Graph) error
}

// cudaLib is the open driver.
type cudaLib struct {
	binder
	errorName, errorText dl.Func
}

// check turns an answer into an error.
func (l *cudaLib) check(call string, code uintptr) error {
	if int32(code) == 0 {
		return nil
	}
	e := &Error{Call: call, Code: int(int32(code)), Name: "CUDA_ERROR", Text: "unknown"}
	at := new(uintptr)
	if l.errorName.Call(code, uintptr(unsafe.Pointer(at))) == 0 {
		e.Name = dl.Text(*at, 128)
	}
	if l.errorText.Call(code, uintptr(unsafe.Pointer(at))) == 0 {
		e.Text = dl.Text(*at, 256)
	}
	return e
}

func loadCUDA(folders []string) (*CUDA, error) {
	lib, err := find(libcuda, folders)
	if err != nil {
		return nil, err
	}
	l := &cudaLib{binder: binder{lib: lib}}
	l.errorName, l.errorText = l.find("cuGetErrorName"), l.find("cuGetErrorString")
	start, t := l.find("cuInit"), &CUDA{}
	l.bindDevices(t)
	l.bindMemory(t)
	l.bindStreams(t)
	l.bindEvents(t)
	l.bindModules(t)
	l.bindCapture(t)
	if l.err != nil {
		return nil, l.err
	}
	return t, l.check("cuInit", start.Call(0))
}

func (l *cudaLib) bindDevices(t *CUDA) {
	count, name, attribute := l.find("cuDeviceGetCount"), l.find("cuDeviceGetName"), l.find("cuDeviceGetAttribute")
	version := l.find("cuDriverGetVersion")
	t.Version = func() (int, int, error) {
		n := new(int32)
		err := l.check("cuDriverGetVersion", version.Call(uintptr(unsafe.Pointer(n))))
		return int(*n) / 1000, int(*n) % 1000 / 10, err
	}
	retain, release, current := l.find("cuDevicePrimaryCtxRetain"), l.find("cuDevicePrimaryCtxRelease_v2"), l.find("cuCtxSetCurrent")
	t.DeviceCount = func() (int, error) {
		n := new(int32)
		err := l.check("cuDeviceGetCount", count.Call(uintptr(unsafe.Pointer(n))))
		return int(*n), err
	}
	t.DeviceName = func(ordinal int) (string, error) {
		text := make([]byte, 256)
		err := l.check("cuDeviceGetName", name.Call(uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)), uintptr(ordinal)))
		return dl.Text(uintptr(unsafe.Pointer(&text[0])), len(text)), err
	}
	t.Attribute = func(ordinal, which int) (int, error) {
		n := new(int32)
		err := l.check("cuDeviceGetAttribute", attribute.Call(uintptr(unsafe.Pointer(n)), uintptr(which), uintptr(ordinal)))
		return int(*n), err
	}
	flags := l.find("cuDevicePrimaryCtxSetFlags_v2")
	const (
		blockingSync = 4   // waiting threads sleep
		active       = 708 // somebody has it already, with flags of their own; since CUDA 11 that is no matter
	)
	t.Retain = func(ordinal int) (Context, error) {
		c := new(Context)
		if answer := flags.Call(uintptr(ordinal), blockingSync); int32(answer) != active {
			if err := l.check("cuDevicePrimaryCtxSetFlags", answer); err != nil {
				return 0, err
			}
		}
		err := l.check("cuDevicePrimaryCtxRetain", retain.Call(uintptr(unsafe.Pointer(c)), uintptr(ordinal)))
		return *c, err
	}
	t.Release = func(ordinal int) error {
		return l.check("cuDevicePrimaryCtxRelease", release.Call(uintptr(ordinal)))
	}
	t.SetCurrent = func(c Context) error {
		return l.check("cuCtxSetCurrent", current.With(&dl.Args{uintptr(c)}))
	}
}

func (l *cudaLib) bindMemory(t *CUDA) {
	info, alloc, free := l.find("cuMemGetInfo_v2"), l.find("cuMemAlloc_v2"), l.find("cuMemFree_v2")
	register, unregister := l.find("cuMemHostRegister_v2"), l.find("cuMemHostUnregister")
	copyAsync, fill := l.find("cuMemcpyAsync"), l.find("cuMemsetD8Async")
	t.MemoryInfo = func() (int64, int64, error) {
		n := new([2]int64)
		err := l.check("cuMemGetInfo", info.Call(uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&n[1]))))
		return n[0], n[1], err
	}
	t.Alloc = func(bytes int64) (Pointer, error) {
		p := new(Pointer)
		err := l.check("cuMemAlloc", alloc.Call(uintptr(unsafe.Pointer(p)), uintptr(bytes)))
		return *p, err
	}
	t.Free = func(p Pointer) error { return l.check("cuMemFree", free.Call(uintptr(p))) }
	const portable = 1 // page-locked for all contexts
	t.Register = func(host []byte) error {
		return l.check("cuMemHostRegister", register.Call(uintptr(unsafe.Pointer(unsafe.SliceData(host))), uintptr(len(host)), portable))
	}
	t.Unregister = func(host []byte) error {
		return l.check("cuMemHostUnregister", unregister.Call(uintptr(unsafe.Pointer(unsafe.SliceData(host)))))
	}
	t.Copy = func(dst, src Pointer, bytes int64, s Stream) error {
		return l.check("cuMemcpyAsync", copyAsync.With(&dl.Args{uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s)}))
	}
	t.Fill = func(dst Pointer, value byte, bytes int64, s Stream) error {
		return l.check("cuMemsetD8Async", fill.With(&dl.Args{uintptr(dst), uintptr(value), uintptr(bytes), uintptr(s)}))
	}
}

func (l *cudaLib) bindStreams(t *CUDA) {
	create, destroy := l.find("cuStreamCreate"), l.find("cuStreamDestroy_v2")
	end, wait := l.waiter("cuStreamQuery", "cuStreamSynchronize"), l.find("cuStreamWaitEvent")
	const nonBlocking = 1 // does not wait for the default stream
	t.NewStream = func() (Stream, error) {
		s := new(Stream)
		err := l.check("cuStreamCreate", create.Call(uintptr(unsafe.Pointer(s)), nonBlocking))
		return *s, err
	}
	t.CloseStream = func(s Stream) error { return l.check("cuStreamDestroy", destroy.Call(uintptr(s))) }
	t.SyncStream = func(s Stream, poll time.Duration) error { return end(uintptr(s), poll) }
	value := l.find("cuStreamWaitValue32_v2")
	const atLeast = 0
	t.WaitValue = func(s Stream, at Pointer, v uint32) error {
		return l.check("cuStreamWaitValue32", value.With(&dl.Args{uintptr(s), uintptr(at), uintptr(v), atLeast}))
	}
	t.WaitEvent = func(s Stream, e Event) error {
		return l.check("cuStreamWaitEvent", wait.With(&dl.Args{uintptr(s), uintptr(e), 0}))
	}
}

// waiter waits for a stream or an event, by the functions that ask for it and that wait: it
// asks for some time, then its thread sleeps, which costs some tens of microseconds.
func (l *cudaLib) waiter(ask, wait string) func(handle uintptr, poll time.Duration) error {
	query, synchronize := l.find(ask), l.find(wait)
	const notReady = 600
	return func(handle uintptr, poll time.Duration) error {
		args := &dl.Args{handle}
		for start := stopwatch.Now(); stopwatch.Since(start) < poll; {
			if answer := query.With(args); int32(answer) != notReady {
				return l.check(ask, answer)
			}
		}
		return l.check(wait, synchronize.With(args))
	}
}

func (l *cudaLib) bindEvents(t *CUDA) {
	create, destroy := l.find("cuEventCreate"), l.find("cuEventDestroy_v2")
	record, elapsed, happened := l.find("cuEventRecord"), l.find("cuEventElapsedTime"), l.waiter("cuEventQuery", "cuEventSynchronize")
	const blockingSync = 1 // waiting threads sleep
	t.SyncEvent = func(e Event, poll time.Duration) error { return happened(uintptr(e), poll) }
	t.NewEvent = func() (Event, error) {
		e := new(Event)
		err := l.check("cuEventCreate", create.Call(uintptr(unsafe.Pointer(e)), blockingSync))
		return *e, err
	}
	t.CloseEvent = func(e Event) error { return l.check("cuEventDestroy", destroy.Call(uintptr(e))) }
	t.Record = func(e Event, s Stream) error {
		return l.check("cuEventRecord", record.With(&dl.Args{uintptr(e), uintptr(s)}))
	}
	t.Elapsed = func(from, to Event) (time.Duration, error) {
		ms := new(float32)
		err := l.check("cuEventElapsedTime", elapsed.Call(uintptr(unsafe.Pointer(ms)), uintptr(from), uintptr(to)))
		return time.Duration(float64(*ms) * float64(time.Millisecond)), err
	}
}

func (l *cudaLib) bindModules(t *CUDA) {
	load, unload, function := l.find("cuModuleLoadData"), l.find("cuModuleUnload"), l.find("cuModuleGetFunction")
	attribute, launch := l.find("cuFuncSetAttribute"), l.find("cuLaunchKernel")
	t.LoadModule = func(image []byte) (Module, error) {
		m := new(Module)
		err := l.check("cuModuleLoadData", load.Call(uintptr(unsafe.Pointer(m)), uintptr(unsafe.Pointer(unsafe.SliceData(image)))))
		return *m, err
	}
	t.UnloadModule = func(m Module) error { return l.check("cuModuleUnload", unload.Call(uintptr(m))) }
	t.Function = func(m Module, name string) (Function, error) {
		f, text := new(Function), append([]byte(name), 0)
		err := l.check("cuModuleGetFunction", function.Call(uintptr(unsafe.Pointer(f)), uintptr(m), uintptr(unsafe.Pointer(&text[0]))))
		return *f, err
	}
	if encode, err := l.lib.Func("cuTensorMapEncodeTiled"); err == nil {
		t.Describe = func(to *TensorMap, m Tiles) error {
			const float16, bfloat16, swizzle128, promote128 = 6, 9, 3, 2 // a row of a tile has 128 bytes, of which others are wanted much later
			kind := uintptr(bfloat16)
			if m.Float16 {
				kind = float16
			}
			sizes, step, box, each := &[2]uint64{uint64(m.Columns), uint64(m.Rows)}, &[1]uint64{uint64(m.Step)}, &[2]uint32{m.Wide, m.High}, &[2]uint32{1, 1}
			return l.check("cuTensorMapEncodeTiled", encode.Call(uintptr(unsafe.Pointer(to)), kind, 2, uintptr(m.Address), uintptr(unsafe.Pointer(sizes)),
				uintptr(unsafe.Pointer(step)), uintptr(unsafe.Pointer(box)), uintptr(unsafe.Pointer(each)), 0, swizzle128, promote128, 0))
		}
	}
	const maxDynamicShared, sharedCarveout, all = 8, 9, 100 // percent
	t.PreferShared = func(f Function) error {
		return l.check("cuFuncSetAttribute", attribute.Call(uintptr(f), sharedCarveout, all))
	}
	t.AllowShared = func(f Function, bytes int) error {
		return l.check("cuFuncSetAttribute", attribute.Call(uintptr(f), maxDynamicShared, uintptr(bytes)))
	}
	const clusterDimension, programmaticSerialization = 4, 6
	occupancy := l.find("cuOccupancyMaxActiveClusters")
	t.Clusters = func(k *Launch) (int, error) {
		list, n := &[1]launchAttribute{{id: clusterDimension, value: [16]uint32{k.Cluster, 1, 1}}}, new(int32)
		config := &launchConfig{grid: k.Grid, block: k.Block, shared: k.Shared, attributes: &list[0], count: 1}
		err := l.check("cuOccupancyMaxActiveClusters", occupancy.Call(uintptr(unsafe.Pointer(n)), uintptr(k.Function), uintptr(unsafe.Pointer(config))))
		return int(*n), err
	}
	launchEx := l.find("cuLaunchKernelEx")
	t.Launch = func(k *Launch) error {
		if k.Early || k.Cluster > 1 {
			list, count := new([2]launchAttribute), uint32(0)
			if k.Early {
				list[count] = launchAttribute{id: programmaticSerialization, value: [16]uint32{1}}
				count++
			}
			if k.Cluster > 1 {
				list[count] = launchAttribute{id: clusterDimension, value: [16]uint32{k.Cluster, 1, 1}}
				count++
			}
			config := &launchConfig{grid: k.Grid, block: k.Block, shared: k.Shared, stream: k.Stream, attributes: &list[0], count: count}
			return l.check("cuLaunchKernelEx", launchEx.Call(uintptr(unsafe.Pointer(config)), uintptr(k.Function), uintptr(unsafe.Pointer(k.Params)), 0))
		}
		return l.check("cuLaunchKernel", launch.With(&dl.Args{uintptr(k.Function),
			uintptr(k.Grid[0]), uintptr(k.Grid[1]), uintptr(k.Grid[2]),
			uintptr(k.Block[0]), uintptr(k.Block[1]), uintptr(k.Block[2]),
			uintptr(k.Shared), uintptr(k.Stream), uintptr(unsafe.Pointer(k.Params)), 0}))
	}
}
