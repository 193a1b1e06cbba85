package cpu

import (
	"fmt"
	"time"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/device/hostqueue"
	"spillway/units"
)

// queue does copies and launches in the order they were given.
type queue struct {
	*hostqueue.Queue[work]
	device *Device
}

// work is a copy, or a launch where there is a task.
type work struct {
	dst, src device.Buffer
	link     units.Rate // of the copy; 0 for as fast as it goes
	task     *task
	launch   *device.Launch
}

// Queue opens a queue.
func (d *Device) Queue(name string) (device.Queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queues == nil {
		return nil, fmt.Errorf("cpu: queue %s asked of a closed device", name)
	}
	q := &queue{Queue: hostqueue.New("cpu: queue "+name, work.run), device: d}
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
	return q.Put(work{dst: dst, src: src, link: q.device.link})
}

// Launch runs a kernel.
func (q *queue) Launch(k device.Kernel, l *device.Launch) error {
	t, ours := k.(*task)
	if !ours || t.device != q.device {
		return fmt.Errorf("cpu: launch of a kernel this device did not make")
	}
	if err := t.check(l); err != nil {
		return fmt.Errorf("cpu: launch of %v: %w", t.call, err)
	}
	return q.Put(work{task: t, launch: l})
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
func (w work) run() error {
	if w.task != nil {
		return w.task.run(w.launch)
	}
	dst, src := w.dst.Host(), w.src.Host()
	if dst == nil || src == nil {
		return fmt.Errorf("cpu: copy of %d bytes: memory was freed before the copy ran", w.dst.Bytes)
	}
	start := time.Now()
	kernel.Copy(dst, src)
	if w.link > 0 {
		time.Sleep(w.link.Time(units.Bytes(len(dst))) - time.Since(start))
	}
	return nil
}
