// Package device is what a backend implements and the executor uses: memory, queues that
// run concurrently, events between queues, and kernels for ops. Backends know nothing of
// models or plans.
//
// Everything a queue is given happens later, in the order given. When something fails then,
// the queue skips what follows and reports the error once, at Sync or SyncTo.
//
// A backend registers a Driver under a name (Register), and programs open its devices by
// names such as "cpu" or "cuda:1" (Open). The core is Device, Queue, Memory, Kernel and
// Event; what only some backends can do is an optional interface.
package device

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spillway/op"
)

// Driver opens devices of one backend. The configuration is what follows the colon in a
// name such as "cpu:threads=2" or "cuda:1"; drivers of several devices number them from 0.
// AbsentError when there is no such device.
type Driver interface {
	Open(config string, o Options) (Device, error)
}

// Options are what a program passes to every device it opens. Drivers ignore what they have
// no use for. The zero value is fine.
type Options struct {
	// Cache is a folder for what a backend compiles or times once, such as kernels; ""
	// stores nothing.
	Cache string
	// LibraryPaths are folders in which to look for the vendor's libraries before the
	// common places.
	LibraryPaths []string
	// HostMemory is how many bytes HostAlloc may be asked for in total; a GPU reserves
	// memory of its own for their page table.
	HostMemory int64
}

// AbsentError says that a device does not exist, as opposed to one that does not work.
type AbsentError struct {
	Reason string // in a few words: "no NVIDIA driver found"
	Err    error  // what was tried; nil where there is no more to say
}

func (e *AbsentError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return fmt.Sprintf("%s: %v", e.Reason, e.Err)
}

// Unwrap gives what was tried.
func (e *AbsentError) Unwrap() error { return e.Err }

// Device is a place with its own memory that computes. Its methods may be called from
// several goroutines.
type Device interface {
	Info() Info
	// Alloc reserves memory; plans make one allocation per device and tier.
	Alloc(bytes int64) (Memory, error)
	// HostAlloc reserves host memory that this device copies from and to at full
	// speed: pinned, where a backend distinguishes that.
	HostAlloc(bytes int64) (Memory, error)
	// Queue opens a queue; its name says what it is for: compute, in or out.
	Queue(name string) (Queue, error)
	// Event makes an event, not yet recorded.
	Event() (Event, error)
	// Kernel prepares a call; NoKernelError when the device has none for it.
	Kernel(call op.Call) (Kernel, error)
	// Close frees what is left. The error names memory that was not freed.
	Close() error
}

// The interfaces below are optional: whoever needs one asks for it by a type assertion.

// Meter is implemented by devices that count the memory Alloc has given.
type Meter interface {
	// Allocated is how many bytes are allocated now, and the most that were since nothing was.
	Allocated() (now, peak int64)
}

// Hardware is implemented by devices that know which piece of hardware they are.
type Hardware interface {
	Model() string            // as the driver calls it: "NVIDIA H200"
	Address() (string, error) // on the PCI bus: "00000000:1b:00.0"
}

// DriverMemory is implemented by devices whose driver counts the memory of the hardware,
// that of other programs included.
type DriverMemory interface {
	// Memory is what the driver counts now, in bytes.
	Memory() (free, total int64, err error)
	// Used is how many bytes the driver counts for this program now: its allocations, its
	// context, its kernels and the libraries they are from.
	Used() (int64, error)
	// Footprint predicts Used when so many more bytes are allocated on the device and
	// page-locked on the host. The kernels that will run must have been asked for.
	Footprint(device, host int64) int64
}

// ScratchLimiter is implemented by devices that need memory of their own to prepare kernels.
type ScratchLimiter interface {
	// LimitScratch sets the most bytes that this takes, for kernels asked for from now on.
	LimitScratch(bytes int64)
}

// TF32 is implemented by devices that can round the f32 operands of matmuls and attention
// to 10 bits of fraction, which is several times faster.
type TF32 interface {
	TF32() bool
	SetTF32(on bool) // for kernels asked for from now on
}

// OpFuser is implemented by devices that have kernels for fused ops (op.Kind.Fused) and are
// faster with them: programs of few rows are planned with those that Kernel has.
type OpFuser interface {
	FusesOps() bool
}

// Decompressor is implemented by devices that may multiply by weights in quant.CompressedBF16 faster than by those
// in bf16.
type Decompressor interface {
	Decompresses() bool
}

// GraphCapturer is implemented by devices that can capture what their queues are given and
// launch it again with one call, which is faster than giving it again.
type GraphCapturer interface {
	// Capture captures what issue gives to the queues, all of this device, instead of
	// running it. Nothing in it may wait for an event that was recorded before.
	// ErrNotCapturable when it contains something that cannot be captured.
	Capture(queues []Queue, issue func() error) (Graph, error)
}

// Graph is what queues were given once.
type Graph interface {
	// Launch runs it all, behind what the queues were given so far, with the numbers that
	// the Args of its launches hold now.
	Launch() error
	Close() error
}

// ErrNotCapturable says that a device cannot capture what its queues were given.
var ErrNotCapturable = errors.New("this cannot be captured as a graph")

// Info describes a device.
type Info struct {
	Name string // "cpu", "cuda:0"
	// Limit is the most bytes that Alloc gives in total.
	Limit int64
	// Overhead is how many bytes of the device are in use besides its allocations.
	Overhead int64
	// Alignment is what every buffer's offset must be a multiple of.
	Alignment int64
	// OnHost says that Alloc gives host memory.
	OnHost bool
}

// Memory is one allocation.
type Memory interface {
	Size() int64
	// Host is the memory as bytes where the CPU can reach it, else nil.
	Host() []byte
	Free() error
}

// Buffer is a part of a memory.
type Buffer struct {
	Memory Memory
	Offset int64
	Bytes  int64
}

// Host is the buffer as bytes where the CPU can reach it, else nil.
func (b Buffer) Host() []byte {
	h := b.Memory.Host()
	if h == nil {
		return nil
	}
	return h[b.Offset : b.Offset+b.Bytes : b.Offset+b.Bytes]
}

// Queue runs what it is given in order, concurrently with other queues.
type Queue interface {
	// Copy moves bytes between host and device or within the device.
	Copy(dst, src Buffer) error
	// Launch runs a kernel. The launch must not change until it has run.
	Launch(k Kernel, l *Launch) error
	// Record marks the event when everything before it is done.
	Record(e Event) error
	// Wait holds the queue until the event's latest Record, at the time of this
	// call, has happened.
	Wait(e Event) error
	// Sync returns when everything is done, with the first error since the last Sync.
	Sync() error
	// SyncTo returns when the event's latest Record, which this queue was given, has
	// happened, without waiting for what was given after it; with the first error that was
	// not yet reported.
	SyncTo(e Event) error
	Close() error
}

// Interruptible is an optional interface of queues that can skip what they were given: a step of a large
// model may take many seconds, and is in a queue long before it is done.
type Interruptible interface {
	// Until has what is given from now on skipped once the context has ended; Sync returns the context's
	// error then. Nil ends that.
	Until(ctx context.Context) error
}

// Launch holds the operands of one kernel run.
type Launch struct {
	Buffers   []Buffer // operands, then outputs, in the order of the call
	Workspace Buffer   // as large as Kernel.Workspace says
	Args      *op.Args // nil where the op reads none
	Label     string   // what asked for it, for errors; "" where nobody said
}

// Kernel is a call that a device is ready to run.
type Kernel interface {
	// Workspace is scratch memory a launch needs, in bytes.
	Workspace() int64
}

// Event is a mark between queues.
type Event interface {
	// Time is when it was last recorded, on the device's clock; meaningful after
	// a Sync of the queue that recorded it.
	Time() time.Duration
}

// HostTimed is an optional interface of events that are recorded by the host.
type HostTimed interface {
	Event
	// HostTime is when it was last recorded, with a reading of the host's monotonic clock.
	HostTime() time.Time
}

// Elapser is an optional interface of events on a device's own clock.
type Elapser interface {
	Event
	// Since is the time from another event of the device to this one, as exact as the device counts:
	// the difference of two Times loses digits the longer the device is open.
	Since(Event) time.Duration
}

// Joiner is an optional interface of devices that can run the kernels of a program as one,
// because they do not look at operands (the simulator).
type Joiner interface {
	// Join makes one kernel of several that run one after the other.
	Join([]Kernel) Kernel
}

// HostEvent is an optional interface of events that a goroutine can wait for. It lets
// queues of different backends in one process wait for each other.
type HostEvent interface {
	Event
	// Issued is the number of the latest Record asked for, 0 for none.
	Issued() uint64
	// Await returns when the record of that number has happened.
	Await(record uint64)
}

// Notifier is an optional interface of such events: whoever records one calls, so that no goroutine has to
// be woken first.
type Notifier interface {
	// Notify has w called with a number when the record has happened, at once where it has.
	Notify(record uint64, w Woken, number uint32)
}

// Woken is called when what it waited for has happened. It must not block.
type Woken interface {
	Wake(number uint32)
}

// NoKernelError says that a device cannot run a call.
type NoKernelError struct {
	Device string
	Call   op.Call
	Reason string
}

func (e *NoKernelError) Error() string {
	return fmt.Sprintf("%s has no kernel for %v: %s", e.Device, e.Call, e.Reason)
}

// OutOfMemoryError says that an allocation did not fit.
type OutOfMemoryError struct {
	Device    string
	Asked     int64
	Allocated int64
	Limit     int64
}

func (e *OutOfMemoryError) Error() string {
	return fmt.Sprintf("%s: %d bytes asked with %d of %d allocated; plan for less memory", e.Device, e.Asked, e.Allocated, e.Limit)
}

// ErrLeak is wrapped by Close when memory was not freed.
var ErrLeak = errors.New("memory not freed")
