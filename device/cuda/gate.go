package cuda

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"spillway/device"
	"spillway/device/cuda/driver"
)

// hostGate lets a stream wait for what goroutines of this process do, such as reading a
// disk: the stream waits until a number in page-locked memory has been reached, and a
// goroutine counts it up as the events happen, in the order they were waited for.
type hostGate struct {
	memory *memory
	waits  chan awaited
	ended  chan struct{}
	asked  uint32 // waits so far
}

// awaited is a record of an event.
type awaited struct {
	event  device.HostEvent
	record uint64
}

// gateWaits is how many waits may be open before the next one blocks its caller.
const gateWaits = 4096

// How long a wait polls before its thread sleeps. Next to updates on the CPU it is short: those
// have a thread per core, and all wait for the one that shares its core with a polling thread.
// The CPU itself, which has nothing else to do when it waits, polls long.
const (
	pollAlone  = 20 * time.Millisecond
	pollShared = 50 * time.Microsecond
)

// poll is how long waits of the thread that launches poll.
func (d *Device) poll() time.Duration {
	if d.joined.Load() {
		return pollShared
	}
	return pollAlone
}

// newGate makes a gate. Close of the device does not check its memory for leaks.
func (d *Device) newGate() (*hostGate, error) {
	m, err := d.pinned(int64(unsafe.Sizeof(uint32(0))))
	if err != nil {
		return nil, err
	}
	g := &hostGate{memory: m, waits: make(chan awaited, gateWaits), ended: make(chan struct{})}
	go g.serve()
	return g, nil
}

// number is what the stream looks at.
func (g *hostGate) number() *uint32 {
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(g.memory.Host())))
}

// serve counts events up as they happen.
func (g *hostGate) serve() {
	defer close(g.ended)
	var passed uint32
	for w := range g.waits {
		w.event.Await(w.record)
		passed++
		atomic.StoreUint32(g.number(), passed)
	}
}

// hold makes the stream wait for the event's latest record. The context must be
// current.
func (g *hostGate) hold(cuda *driver.CUDA, s driver.Stream, e device.HostEvent) error {
	w := awaited{e, e.Issued()}
	if w.record == 0 {
		return nil
	}
	g.asked++
	g.waits <- w
	return cuda.WaitValue(s, driver.Pointer(uintptr(unsafe.Pointer(g.number()))), g.asked)
}

// waitFor holds the queue until an event of another backend has happened.
func (q *queue) waitFor(e device.Event) error {
	h, ok := e.(device.HostEvent)
	if !ok {
		return fmt.Errorf("%s: wait for an event that goroutines cannot wait for (%T)", q.device.name, e)
	}
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	q.follows = false
	if q.gate == nil {
		var err error
		if q.gate, err = q.device.newGate(); err != nil {
			return err
		}
	}
	if err := q.gate.hold(q.device.lib.CUDA, q.stream, h); err != nil {
		return fmt.Errorf("%s: queue %s: waiting for another backend: %w", q.device.name, q.name, err)
	}
	return nil
}

// shut closes the gate if there is one. Nothing may wait at it any more, and the context must
// be current.
func (q *queue) shut() error {
	if q.gate == nil {
		return nil
	}
	g := q.gate
	q.gate = nil
	close(g.waits)
	<-g.ended
	return g.memory.release()
}

// Issued implements device.HostEvent.
func (e *event) Issued() uint64 { return e.records.Load() }

// Await implements device.HostEvent. It waits for the latest record there is, which is
// the one asked for or one after it. A context that was lost has nothing to wait for.
func (e *event) Await(uint64) {
	e.device.joined.Store(true)
	// An error is the context's: the Sync of the event's queue tells it.
	_ = e.device.within(func() error { return e.device.lib.CUDA.SyncEvent(e.handle, pollAlone) })
}
