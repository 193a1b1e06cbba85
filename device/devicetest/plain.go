package devicetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/device"
	"spillway/internal/stopwatch"
	"spillway/op"
)

// Plain is the simplest device that keeps all promises: memory is a Go slice,
// queues do what they are given at once, kernels are the references of the ops.
// It is slow, and right by construction.
type Plain struct {
	limit int64

	mu        sync.Mutex // guards what follows
	allocated int64
	host      int64
	start     time.Time
}

// NewPlain makes a device; a limit of 0 is none.
func NewPlain(limit int64) *Plain { return &Plain{limit: limit, start: stopwatch.Now()} }

// Info describes the device.
func (p *Plain) Info() device.Info {
	return device.Info{Name: "plain", Limit: p.limit, Alignment: 8, OnHost: true}
}

// Alloc makes a slice and counts it.
func (p *Plain) Alloc(bytes int64) (device.Memory, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit > 0 && bytes > p.limit-p.allocated {
		return nil, &device.OutOfMemoryError{Device: "plain", Asked: bytes, Allocated: p.allocated, Limit: p.limit}
	}
	return p.make(bytes, &p.allocated)
}

// HostAlloc makes a slice that the limit does not count.
func (p *Plain) HostAlloc(bytes int64) (device.Memory, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.make(bytes, &p.host)
}

func (p *Plain) make(bytes int64, counter *int64) (device.Memory, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("plain: %d bytes asked", bytes)
	}
	*counter += bytes
	return &plainMemory{device: p, data: make([]byte, bytes), counter: counter}, nil
}

// Queue opens a queue.
func (p *Plain) Queue(name string) (device.Queue, error) { return &plainQueue{device: p}, nil }

// Event makes an event.
func (p *Plain) Event() (device.Event, error) { return &plainEvent{}, nil }

// Kernel is the reference of the call.
func (p *Plain) Kernel(call op.Call) (device.Kernel, error) {
	if err := call.Check(); err != nil {
		return nil, fmt.Errorf("plain: %w", err)
	}
	return &plainKernel{call}, nil
}

// Close reports what was not freed.
func (p *Plain) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allocated+p.host != 0 {
		return fmt.Errorf("plain: %d bytes of device and %d of host: %w", p.allocated, p.host, device.ErrLeak)
	}
	return nil
}

type plainMemory struct {
	device  *Plain
	data    []byte
	counter *int64 // nil once freed
}

func (m *plainMemory) Size() int64  { return int64(len(m.data)) }
func (m *plainMemory) Host() []byte { return m.data }

func (m *plainMemory) Free() error {
	m.device.mu.Lock()
	defer m.device.mu.Unlock()
	if m.counter == nil {
		return errors.New("plain: memory freed twice")
	}
	*m.counter -= m.Size()
	m.counter = nil
	return nil
}

type plainKernel struct{ call op.Call }

func (k *plainKernel) Workspace() int64 { return 0 }

type plainEvent struct{ at time.Duration }

func (e *plainEvent) Time() time.Duration { return e.at }

// plainQueue is always done, so events have nothing to hold back.
type plainQueue struct {
	device *Plain
	err    error // met by a kernel, kept until Sync
}

func (q *plainQueue) Copy(dst, src device.Buffer) error {
	if dst.Bytes != src.Bytes {
		return fmt.Errorf("plain: copy of %d bytes into %d", src.Bytes, dst.Bytes)
	}
	to, err := content(dst)
	if err != nil {
		return err
	}
	from, err := content(src)
	if err != nil {
		return err
	}
	if q.err == nil {
		copy(to, from)
	}
	return nil
}

// content of a buffer, its bounds checked.
func content(b device.Buffer) ([]byte, error) {
	if err := b.Check(); err != nil {
		return nil, fmt.Errorf("plain: a buffer %w", err)
	}
	return b.Host(), nil
}

func (q *plainQueue) Launch(k device.Kernel, l *device.Launch) error {
	kernel, ok := k.(*plainKernel)
	if !ok {
		return fmt.Errorf("plain: a kernel of another device (%T)", k)
	}
	arrays, raw, err := kernel.operands(l.Buffers)
	if err != nil {
		return err
	}
	if q.err == nil {
		q.err = kernel.run(arrays, raw, l.Args)
	}
	return nil
}

// operands reads all buffers of a launch, outputs too: some are added to.
func (k *plainKernel) operands(buffers []device.Buffer) (arrays []op.Array, raw [][]byte, err error) {
	types := slices.Concat(k.call.In, k.call.Out)
	if len(buffers) != len(types) {
		return nil, nil, fmt.Errorf("plain: %d buffers for %v", len(buffers), k.call)
	}
	for i, t := range types {
		b, err := content(buffers[i])
		if err != nil {
			return nil, nil, err
		}
		a, err := op.Decode(t, b)
		if err != nil {
			return nil, nil, fmt.Errorf("plain: buffer %d of %v: %w", i, k.call, err)
		}
		arrays, raw = append(arrays, a), append(raw, b)
	}
	return arrays, raw, nil
}

func (k *plainKernel) run(arrays []op.Array, raw [][]byte, args *op.Args) error {
	if args == nil {
		args = &op.Args{}
	}
	n := len(k.call.In)
	if err := k.call.Reference(arrays[:n], arrays[n:], *args); err != nil {
		return err
	}
	for i, out := range arrays[n:] {
		b, err := out.Encode()
		if err != nil {
			return err
		}
		copy(raw[n+i], b)
	}
	return nil
}

func (q *plainQueue) Record(e device.Event) error {
	event, ok := e.(*plainEvent)
	if !ok {
		return fmt.Errorf("plain: an event of another device (%T)", e)
	}
	event.at = stopwatch.Since(q.device.start)
	return nil
}

func (q *plainQueue) Wait(device.Event) error { return nil }

func (q *plainQueue) Sync() error {
	err := q.err
	q.err = nil
	return err
}

// SyncTo has nothing to wait for: all is done when it is given.
func (q *plainQueue) SyncTo(device.Event) error { return q.Sync() }

func (q *plainQueue) Close() error { return q.Sync() }
