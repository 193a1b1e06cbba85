package sim

import (
	"sync"

	"spillway/device"
)

// Faults says which operation fails: the n-th of its kind, counted from 1; 0 for none. Every
// operation after it works again.
type Faults struct {
	Alloc  int
	Copy   int
	Launch int
	Err    error // that the operation returns
}

// Capped is a device with less memory than it really has, and with faults. It counts what is
// allocated on it, so that a test can compare that with the prediction.
type Capped struct {
	device.Device
	limit  int64
	faults Faults

	mu       sync.Mutex
	counts   Counts
	allocs   int
	copies   int
	launches int
}

// Counts of a capped device, in bytes.
type Counts struct {
	Allocated int64 // now
	Peak      int64 // at most
	Host      int64 // host memory now
	HostPeak  int64
	Allocs    int64 // calls
}

// NewCapped puts a limit around a device, which nobody else may use then; closing the cap
// closes it.
func NewCapped(d device.Device, limit int64, f Faults) *Capped {
	return &Capped{Device: d, limit: limit, faults: f}
}

// Info is that of the device, with the lower limit.
func (c *Capped) Info() device.Info {
	i := c.Device.Info()
	i.Limit = c.limit
	return i
}

// Fail says anew which operations fail, counted from now.
func (c *Capped) Fail(f Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults, c.allocs, c.copies, c.launches = f, 0, 0, 0
}

// Counts so far.
func (c *Capped) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Allocated counts what Alloc has given.
func (c *Capped) Allocated() (now, most int64) {
	counts := c.Counts()
	return counts.Allocated, counts.Peak
}

// Alloc refuses what exceeds the limit, and fails on demand.
func (c *Capped) Alloc(bytes int64) (device.Memory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.allocs++; c.allocs == c.faults.Alloc {
		return nil, c.faults.Err
	}
	if c.counts.Allocated+bytes > c.limit {
		return nil, &device.OutOfMemoryError{Device: c.Device.Info().Name, Asked: bytes, Allocated: c.counts.Allocated, Limit: c.limit}
	}
	m, err := c.Device.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	c.counts.Allocs++
	c.counts.Allocated += bytes
	c.counts.Peak = max(c.counts.Peak, c.counts.Allocated)
	return &cappedMemory{Memory: m, release: func() { c.release(&c.counts.Allocated, bytes) }}, nil
}

// HostAlloc counts host memory without a limit.
func (c *Capped) HostAlloc(bytes int64) (device.Memory, error) {
	m, err := c.Device.HostAlloc(bytes)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Allocs++
	c.counts.Host += bytes
	c.counts.HostPeak = max(c.counts.HostPeak, c.counts.Host)
	return &cappedMemory{Memory: m, release: func() { c.release(&c.counts.Host, bytes) }}, nil
}

func (c *Capped) release(from *int64, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*from -= bytes
}

// Queue fails on demand.
func (c *Capped) Queue(name string) (device.Queue, error) {
	q, err := c.Device.Queue(name)
	if err != nil {
		return nil, err
	}
	return &cappedQueue{Queue: q, c: c}, nil
}

// cappedMemory counts its bytes back once.
type cappedMemory struct {
	device.Memory
	once    sync.Once
	release func()
}

func (m *cappedMemory) Free() error {
	m.once.Do(m.release)
	return m.Memory.Free()
}

// cappedQueue gives the device its own memories and injects faults.
type cappedQueue struct {
	device.Queue
	c *Capped
}

func (q *cappedQueue) Copy(dst, src device.Buffer) error {
	if err := q.c.fault(&q.c.copies, &q.c.faults.Copy); err != nil {
		return err
	}
	return q.Queue.Copy(unwrap(dst), unwrap(src))
}

func (q *cappedQueue) Launch(k device.Kernel, l *device.Launch) error {
	if err := q.c.fault(&q.c.launches, &q.c.faults.Launch); err != nil {
		return err
	}
	for i := range l.Buffers {
		l.Buffers[i] = unwrap(l.Buffers[i])
	}
	l.Workspace = unwrap(l.Workspace)
	return q.Queue.Launch(k, l)
}

func (c *Capped) fault(count, at *int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *count++; *count == *at {
		return c.faults.Err
	}
	return nil
}

// unwrap takes the cap off a buffer: the same bytes, as the device knows them.
func unwrap(b device.Buffer) device.Buffer {
	if m, ok := b.Memory.(*cappedMemory); ok {
		b.Memory = m.Memory
	}
	return b
}
