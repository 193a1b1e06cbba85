package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"spillway/device"
	"spillway/device/cuda/driver"
)

// queue is a stream. Everything is passed to the driver at once, which keeps the order.
type queue struct {
	device *Device
	name   string
	stream driver.Stream
	number int // that no other open queue of the device has

	mu        sync.Mutex
	closed    bool
	gate      *hostGate       // for events of other backends; nil until one is waited for
	launched  int             // launches since the last Sync
	last      *preparedKernel // the latest of them
	marks     marks
	capturing *capturedGraph
	follows   bool // what the stream was given last is a kernel of ours
	copied    device.Launch
	// The parameters of one launch at a time, in memory that does not move.
	launch driver.Launch
	slots  [driver.MaxParams]uint64
	params [driver.MaxParams]unsafe.Pointer
	maps   *[maxPanels]driver.TensorMap // of tiledLaunch; nil until there is one
}

// Queue opens a queue.
func (d *Device) Queue(name string) (device.Queue, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%s: queue %s asked of a closed device", d.name, name)
	}
	number := d.freeNumber()
	if number == maxQueues {
		return nil, fmt.Errorf("%s: queue %s asked for next to %d others, which is the most; close one", d.name, name, number)
	}
	s, err := d.lib.CUDA.NewStream()
	if err != nil {
		return nil, fmt.Errorf("%s: queue %s: %w", d.name, name, err)
	}
	q := &queue{device: d, name: name, stream: s, number: number}
	for i := range q.slots {
		q.params[i] = unsafe.Pointer(&q.slots[i])
	}
	q.launch.Stream, q.launch.Params = s, &q.params
	d.queues[q] = true
	return q, nil
}

// maxQueues is how many queues a device has at once: QUEUES of the kernels with counters.
const maxQueues = 32

// freeNumber is the smallest number that no queue has. The lock is held.
func (d *Device) freeNumber() (n int) {
	var taken [maxQueues + 1]bool
	for q := range d.queues {
		taken[q.number] = true
	}
	for n < maxQueues && taken[n] {
		n++
	}
	return n
}

// enter takes the queue for one call of the driver.
func (q *queue) enter() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return fmt.Errorf("%s: queue %s is closed", q.device.name, q.name)
	}
	if err := q.device.enter(); err != nil {
		q.mu.Unlock()
		return err
	}
	return nil
}

func (q *queue) leave() {
	q.device.leave()
	q.mu.Unlock()
}

// Copy moves bytes between host and GPU or within the GPU.
func (q *queue) Copy(dst, src device.Buffer) error {
	if dst.Bytes != src.Bytes {
		return fmt.Errorf("%s: copy of %d bytes to %d", q.device.name, src.Bytes, dst.Bytes)
	}
	to, err := address(dst)
	if err != nil {
		return fmt.Errorf("%s: copy: the destination %w", q.device.name, err)
	}
	from, err := address(src)
	if err != nil {
		return fmt.Errorf("%s: copy: the source %w", q.device.name, err)
	}
	if dst.Bytes == 0 {
		return nil
	}
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	if q.copiesByKernel(dst, src) {
		if err := q.copyByKernel(dst, src); err != nil {
			return fmt.Errorf("%s: copy of %d bytes by a kernel: %w", q.device.name, dst.Bytes, err)
		}
		return nil
	}
	q.follows = false
	if err := q.device.lib.CUDA.Copy(to, from, dst.Bytes, q.stream); err != nil {
		return fmt.Errorf("%s: copy of %d bytes: %w", q.device.name, dst.Bytes, err)
	}
	return nil
}

// Launch runs a kernel.
func (q *queue) Launch(k device.Kernel, l *device.Launch) error {
	t, ours := k.(*preparedKernel)
	if !ours || t.device != q.device {
		return fmt.Errorf("%s: launch of a kernel this device did not make", q.device.name)
	}
	if err := t.check(l); err != nil {
		return fmt.Errorf("%s: launch of %v: %w", q.device.name, t.call, err)
	}
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	q.launched, q.last = q.launched+1, t
	if q.capturing != nil {
		q.capturing.launches, q.capturing.last = q.capturing.launches+1, t
	}
	for _, s := range t.program.actions {
		if err := q.do(s, l); err != nil {
			return fmt.Errorf("%s: launch of %v: %w", q.device.name, t.call, err)
		}
	}
	return q.mark(len(t.program.actions))
}

// do runs a launch of a program. What follows a call of a library begins when that has ended.
func (q *queue) do(a action, l *device.Launch) error {
	switch a.(type) {
	case *kernelLaunch, *tiledLaunch, *joint:
	default:
		q.follows = false
	}
	return a.run(q, l)
}

// Record marks the event when all before it is done.
func (q *queue) Record(e device.Event) error {
	own, ours := e.(*event)
	if !ours || own.device != q.device {
		return fmt.Errorf("%s: record of an event this device did not make", q.device.name)
	}
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	own.records.Add(1)
	own.inGraph.Store(q.capturing != nil)
	return q.device.lib.CUDA.Record(own.handle, q.stream)
}

// Wait holds the queue until the event's latest record has happened.
func (q *queue) Wait(e device.Event) error {
	own, ours := e.(*event)
	if !ours {
		return q.waitFor(e)
	}
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	q.follows = false
	return q.device.lib.CUDA.WaitEvent(q.stream, own.handle)
}

// Sync returns when all is done. A kernel that failed on the GPU ends the context:
// the first Sync that meets the failure reports it, with the launches that may have caused
// it; after that every copy and launch is refused and Sync returns nil.
func (q *queue) Sync() error {
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	err := q.syncError(q.device.lib.CUDA.SyncStream(q.stream, q.device.poll()))
	q.launched, q.last = 0, nil
	return err
}

// SyncTo returns when the event's latest record has happened, with failures as Sync.
func (q *queue) SyncTo(e device.Event) error {
	own, ours := e.(*event)
	if !ours || own.device != q.device {
		return fmt.Errorf("%s: waiting for an event this device did not make", q.device.name)
	}
	if err := q.enter(); err != nil {
		return err
	}
	defer q.leave()
	return q.syncError(q.device.lib.CUDA.SyncEvent(own.handle, q.device.poll()))
}

// syncError reports the error of a wait once, and says which launches may have caused it:
// kernels run later than they are launched, so the driver cannot name one.
func (q *queue) syncError(err error) error {
	if err = q.device.quiet(err); err == nil {
		return nil
	}
	q.device.mu.Lock()
	q.device.lost = err // the context is gone, as it is after a kernel has failed
	q.device.mu.Unlock()
	if q.last == nil {
		return fmt.Errorf("%s: queue %s: %w", q.device.name, q.name, err)
	}
	return fmt.Errorf("%s: queue %s, in one of %d launches up to %v: %w; the GPU's context is lost, open the device anew", q.device.name, q.name, q.launched, q.last.call, err)
}

// Close waits for what is queued and closes the queue.
func (q *queue) Close() error {
	err := q.Sync()
	q.device.mu.Lock()
	delete(q.device.queues, q)
	q.device.mu.Unlock()
	if late := q.device.enter(); late != nil {
		return errors.Join(err, late)
	}
	defer q.device.leave()
	return errors.Join(err, q.end())
}

// end closes the stream, once. The context must be current.
func (q *queue) end() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	for _, e := range q.marks.events[:min(q.marks.made, openMarks)] {
		q.device.spare.add(&recorded{handle: e})
	}
	return errors.Join(q.shut(), q.device.quiet(q.device.lib.CUDA.CloseStream(q.stream)))
}
