package cpu

import (
	"fmt"
	"unsafe"

	"spillway/device"
	"spillway/internal/offheap"
)

// memory is one allocation, of the device or of the host: here they are the same kind.
type memory struct {
	device *Device
	region *offheap.Region
	size   int64
	host   bool // not counted against the limit
}

// Alloc reserves memory of the device.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bytes > d.limit-d.held {
		return nil, &device.OutOfMemoryError{Device: "cpu", Asked: bytes, Allocated: d.held, Limit: d.limit}
	}
	m, err := d.reserve(bytes, false)
	if err != nil {
		return nil, err
	}
	if d.held == 0 {
		d.peak = 0
	}
	d.held += bytes
	d.peak = max(d.peak, d.held)
	return m, nil
}

// Allocated counts what Alloc has given, the most of it since it last had given nothing.
func (d *Device) Allocated() (now, most int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held, d.peak
}

// HostAlloc reserves host memory. Nothing needs pinning to be copied at full speed.
func (d *Device) HostAlloc(bytes int64) (device.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reserve(bytes, true)
}

func (d *Device) reserve(bytes int64, host bool) (device.Memory, error) {
	if d.live == nil {
		return nil, fmt.Errorf("cpu: %d bytes asked of a closed device", bytes)
	}
	region, err := offheap.Alloc(bytes, true)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	m := &memory{device: d, region: region, size: bytes, host: host}
	d.live[m] = true
	return m, nil
}

// Size is what was asked for.
func (m *memory) Size() int64 { return m.size }

// Host is the memory itself.
func (m *memory) Host() []byte { return m.region.Bytes() }

// Free gives the memory back. Nothing queued may still use it.
func (m *memory) Free() error {
	if err := m.region.Free(); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	m.device.mu.Lock()
	defer m.device.mu.Unlock()
	delete(m.device.live, m)
	if !m.host {
		m.device.held -= m.size
	}
	return nil
}

// checkBuffer refuses a buffer that is not wholly inside memory the CPU can reach.
func checkBuffer(b device.Buffer) error {
	if err := b.Check(); err != nil {
		return err
	}
	if b.Memory.Host() == nil && b.Memory.Size() > 0 {
		return fmt.Errorf("is in memory the CPU does not reach, or that was freed")
	}
	return nil
}

// view is a buffer as numbers. The buffer was checked when it was queued: its size
// and offset are multiples of the element.
func view[E any](b device.Buffer) []E {
	if b.Bytes == 0 {
		return nil
	}
	var e E
	host := b.Host()
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(host))), len(host)/int(unsafe.Sizeof(e)))
}

// F32 is operand i of a launch as numbers; outputs follow the operands.
func F32(l *device.Launch, i int) []float32 { return view[float32](l.Buffers[i]) }
func ids(l *device.Launch, i int) []int32   { return view[int32](l.Buffers[i]) }

// scratch is the workspace of a launch.
func scratch(l *device.Launch) []float32 { return view[float32](l.Workspace) }
