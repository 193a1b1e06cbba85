// Package device is what a backend implements and the executor uses: memory,
// queues that run in order beside each other, events between queues, and kernels
// for ops. Backends know nothing of models or plans.
//
// Everything a queue is given happens later, in the order given. An error met
// then is kept: the queue skips what follows and reports it once, at Sync or SyncTo.
package device

import (
	"errors"
	"fmt"
	"time"

	"spillway/op"
)

// Driver opens devices of one kind. The configuration is the part behind the
// colon of a name such as "cpu:threads=2".
type Driver interface {
	Open(config string) (Device, error)
}

// Device is one place with its own memory that computes. Its methods may be
// called from several goroutines.
type Device interface {
	Info() Info
	// Alloc reserves memory; plans make one allocation per device and tier.
	Alloc(bytes int64) (Memory, error)
	// HostAlloc reserves host memory this device copies from and to at full
	// speed (pinned, where that means something).
	HostAlloc(bytes int64) (Memory, error)
	// Queue opens a queue; its name says what it is for: compute, in or out.
	Queue(name string) (Queue, error)
	// Event makes an event, not yet recorded.
	Event() (Event, error)
	// Kernel prepares a call. NoKernelError when the device has none for it.
	Kernel(call op.Call) (Kernel, error)
	// Close frees what is left. The error names memory that was not freed.
	Close() error
}

// Meter is implemented by devices that count the memory Alloc has given.
type Meter interface {
	// Allocated is how many bytes are given now, and the most that ever were.
	Allocated() (now, most int64)
}

// Repeater is implemented by devices that can note what their queues are given and do
// it again with one call, which is quicker than giving it again.
type GraphCapturer interface {
	// Capture notes what issue gives to queues, all of this device, instead of doing
	// it. Nothing in it may wait for an event that was recorded before.
	// ErrNotRepeatable when there is something that cannot be noted.
	Capture(queues []Queue, issue func() error) (Graph, error)
}

// Repeat is what queues were given once.
type Graph interface {
	// Run does it all, behind what the queues were given so far, with the numbers that
	// the Args of the launches hold now.
	Launch() error
	Close() error
}

// ErrNotRepeatable says that a device cannot note what its queues were given.
var ErrNotCapturable = errors.New("this cannot be noted to be repeated")

// Info describes a device.
type Info struct {
	Name string // "cpu", "cuda:0"
	// Limit is the most Alloc will give in total.
	Limit int64
	// Overhead is what the device takes besides its allocations.
	Overhead int64
	// Alignment every buffer's offset must have.
	Alignment int64
	// OnHost: what Alloc gives is host memory.
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

// Bytes of the buffer where the CPU can reach it, else nil.
func (b Buffer) Host() []byte {
	h := b.Memory.Host()
	if h == nil {
		return nil
	}
	return h[b.Offset : b.Offset+b.Bytes : b.Offset+b.Bytes]
}

// Queue runs what it is given in order, beside other queues.
type Queue interface {
	// Copy moves bytes between host and device or within the device.
	Copy(dst, src Buffer) error
	// Launch runs a kernel. The launch must stay untouched until it has run.
	Launch(k Kernel, l *Launch) error
	// Record marks the event when all before it is done.
	Record(e Event) error
	// Wait holds the queue until the event's latest Record, at the time of this
	// call, has happened.
	Wait(e Event) error
	// Sync returns when all is done, with the first error since the last Sync.
	Sync() error
	// SyncTo returns when the event's latest Record, which this queue was given, has
	// happened, whatever was given behind it; with the first error met and not yet
	// reported.
	SyncTo(e Event) error
	Close() error
}

// Launch holds the operands of one kernel run.
type Launch struct {
	Buffers   []Buffer // operands, then outputs, in the order of the call
	Workspace Buffer   // as large as Kernel.Workspace says
	Args      *op.Args // nil where the op reads none
}

// Kernel is a call a device is ready to run.
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

// Joiner is an optional interface of devices that run the kernels of a program as one,
// without looking at operands.
type Joiner interface {
	// Join makes one kernel of several that run behind each other.
	Join([]Kernel) Kernel
}

// HostEvent is an optional interface of events that a goroutine can wait for.
// Through it queues of different backends in one process wait for each other.
type HostEvent interface {
	Event
	// Issued is the number of the latest Record asked for, 0 for none.
	Issued() uint64
	// Await returns when the record of that number has happened.
	Await(record uint64)
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
	return fmt.Sprintf("%s: %d bytes asked with %d of %d allocated; plan for a smaller budget", e.Device, e.Asked, e.Allocated, e.Limit)
}

// ErrLeak is wrapped by Close when memory was not freed.
var ErrLeak = errors.New("memory not freed")
