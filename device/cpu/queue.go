package cpu

import (
	"cmp"
	"fmt"
	"time"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/device/hostqueue"
	"spillway/op"
	"spillway/units"
)

// queue does copies and launches in the order they were given.
type queue struct {
	*hostqueue.Queue[work]
	device *Device
	busy   time.Duration // until when copies over the link take it
}

// work is a copy, or a launch where kernel is set.
type work struct {
	dst, src device.Buffer
	kernel   *preparedKernel
	launch   *device.Launch
}

// Queue opens a queue.
func (d *Device) Queue(name string) (device.Queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queues == nil {
		return nil, fmt.Errorf("cpu: queue %s asked of a closed device", name)
	}
	q := &queue{device: d}
	q.Queue = hostqueue.New("cpu: queue "+name, q.run)
	d.queues[q] = true
	return q, nil
}

// Event makes an event, not yet recorded.
func (d *Device) Event() (device.Event, error) { return hostqueue.NewEvent(), nil }

// Copy moves bytes.
func (q *queue) Copy(dst, src device.Buffer) error {
	if dst.Bytes != src.Bytes {
		return fmt.Errorf("cpu: copy of %d bytes to %d", src.Bytes, dst.Bytes)
	}
	if err := checkBuffer(dst); err != nil {
		return fmt.Errorf("cpu: copy: the destination %w", err)
	}
	if err := checkBuffer(src); err != nil {
		return fmt.Errorf("cpu: copy: the source %w", err)
	}
	return q.Put(work{dst: dst, src: src})
}

// Launch runs a kernel.
func (q *queue) Launch(k device.Kernel, l *device.Launch) error {
	t, ours := k.(*preparedKernel)
	if !ours || t.device != q.device {
		return fmt.Errorf("cpu: launch of a kernel this device did not make")
	}
	fits := func(b device.Buffer, t op.Type) error { return cmp.Or(checkBuffer(b), b.CheckAligned(t.Align())) }
	if err := l.Check(t.call, t.program.Workspace, fits); err != nil {
		return fmt.Errorf("cpu: launch of %v: %w", t.call, err)
	}
	return q.Put(work{kernel: t, launch: l})
}

// Close does what is queued and ends the queue.
func (q *queue) Close() error {
	err := q.Sync()
	q.device.mu.Lock()
	delete(q.device.queues, q)
	q.device.mu.Unlock()
	q.End()
	return err
}

// run does a copy or a launch.
func (q *queue) run(w work) error {
	if w.kernel != nil {
		return w.kernel.run(w.launch)
	}
	dst, src := w.dst.Host(), w.src.Host()
	if dst == nil || src == nil {
		return fmt.Errorf("cpu: copy of %d bytes: memory was freed before the copy ran", w.dst.Bytes)
	}
	q.copy(dst, src)
	q.pace(units.Bytes(len(dst)))
	return nil
}

// copy has a core for itself while it copies much.
func (q *queue) copy(dst, src []byte) {
	if len(dst) >= lendFor {
		q.device.pool.Lend()
		defer q.device.pool.Return()
	}
	kernel.Copy(dst, src)
}

// lendFor is the size of copies, in bytes, that take a core from kernels: some 50 µs.
const lendFor = 1 << 20

// pace makes a copy take as long as the simulated link would, counted from when it could
// begin and the copy before it was through. A goroutine that wakes up late does not make the
// link slower: the next copy is shortened by the delay.
func (q *queue) pace(bytes units.Bytes) {
	if q.device.link == 0 {
		return
	}
	q.busy = max(q.busy, q.Ready()) + q.device.link.Time(bytes)
	time.Sleep(q.busy - hostqueue.Now())
}
