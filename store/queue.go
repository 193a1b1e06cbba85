package store

import (
	"cmp"
	"fmt"

	"spillway/device"
	"spillway/device/hostqueue"
)

// queue does copies in the order they were given, each by all workers of its pool.
type queue struct {
	*hostqueue.Queue[transfer]
	disk *Disk
	pool *workerPool
}

// transfer is one copy; one of its ends, or both, are on the disk.
type transfer struct{ dst, src device.Buffer }

// Queue opens a queue. Any queue copies in either direction; names are for people.
func (d *Disk) Queue(name string) (device.Queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queues == nil {
		return nil, fmt.Errorf("disk: queue %s asked of a closed device", name)
	}
	c, err := newWorkerPool()
	if err != nil {
		return nil, fmt.Errorf("disk: queue %s: %w", name, err)
	}
	q := &queue{disk: d, pool: c, Queue: hostqueue.New("disk: queue "+name, c.copy)}
	d.queues[q] = true
	return q, nil
}

// Copy moves bytes between the disk and host memory, or within the disk.
func (q *queue) Copy(dst, src device.Buffer) error {
	if dst.Bytes != src.Bytes {
		return fmt.Errorf("disk: copy of %d bytes to %d", src.Bytes, dst.Bytes)
	}
	if err := q.check(dst); err != nil {
		return fmt.Errorf("disk: copy: the destination %w", err)
	}
	if err := q.check(src); err != nil {
		return fmt.Errorf("disk: copy: the source %w", err)
	}
	if dst.Memory.Host() != nil && src.Memory.Host() != nil {
		return fmt.Errorf("disk: copy of %d bytes from host memory to host memory", src.Bytes)
	}
	if dst.Memory == src.Memory && dst.Offset < src.Offset+src.Bytes && src.Offset < dst.Offset+dst.Bytes {
		return fmt.Errorf("disk: copy of %d bytes from %d to %d of one memory: they overlap", src.Bytes, src.Offset, dst.Offset)
	}
	return q.Put(transfer{dst, src})
}

// check refuses a buffer that is not wholly inside memory of this disk or of the host.
func (q *queue) check(b device.Buffer) error {
	if err := b.Check(); err != nil {
		return err
	}
	m, onDisk := b.Memory.(*memory)
	if onDisk && !q.disk.has(m) || !onDisk && b.Memory.Host() == nil {
		return fmt.Errorf("is in memory neither of this disk nor of the host, or that was freed (%T)", b.Memory)
	}
	return nil
}

// has says whether a memory is this disk's, and not freed.
func (d *Disk) has(m *memory) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live[m.number] == m
}

// Launch refuses: a disk makes no kernels.
func (q *queue) Launch(device.Kernel, *device.Launch) error {
	return fmt.Errorf("disk: launch of a kernel this device did not make")
}

// Close does what is queued and ends the queue.
func (q *queue) Close() error {
	err := q.Sync()
	q.disk.mu.Lock()
	delete(q.disk.queues, q)
	q.disk.mu.Unlock()
	return cmp.Or(err, q.end())
}

// end stops the goroutines after what is queued. A second end does nothing.
func (q *queue) end() error {
	q.End()
	return q.pool.end()
}
