package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"spillway/device"
	"spillway/device/cuda/driver"
)

// hostGate lets a stream wait for what goroutines of this process do, such as reading a
// disk: the stream waits until a number in page-locked memory has been reached, which is
// counted up as the events happen, in the order they were waited for. Whoever records an event counts; for
// events that only let others wait, a goroutine does.
type hostGate struct {
	memory *memory
	waits  chan awaited
	ended  chan struct{}
	asked  uint32 // waits so far

	mu     sync.Mutex
	passed uint32          // all waits up to this one are over
	early  map[uint32]bool // later ones that are
}

// awaited is a record of an event, and the number of the wait for it.
type awaited struct {
	event  device.HostEvent
	record uint64
	number uint32
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
	g := &hostGate{memory: m, waits: make(chan awaited, gateWaits), ended: make(chan struct{}), early: map[uint32]bool{}}
	go g.serve()
	return g, nil
}

// number is what the stream looks at.
func (g *hostGate) number() *uint32 {
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(g.memory.Host())))
}

// serve waits for events that call nobody.
func (g *hostGate) serve() {
	defer close(g.ended)
	for w := range g.waits {
		w.event.Await(w.record)
		g.Wake(w.number)
	}
}

// Wake implements device.Woken: a wait is over. The stream goes on when those before it are too.
func (g *hostGate) Wake(number uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if number != g.passed+1 {
		g.early[number] = true
		return
	}
	for g.passed++; g.early[g.passed+1]; g.passed++ {
		delete(g.early, g.passed+1)
	}
	atomic.StoreUint32(g.number(), g.passed)
}

// hold makes the stream wait for the event's latest record. The context must be
// current.
func (g *hostGate) hold(cuda *driver.CUDA, s driver.Stream, e device.HostEvent) error {
	record := e.Issued()
	if record == 0 {
		return nil
	}
	g.asked++
	if n, calls := e.(device.Notifier); calls {
		n.Notify(record, g, g.asked)
	} else {
		g.waits <- awaited{e, record, g.asked}
	}
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
