package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/internal/offheap"
)

// memory is one allocation, on the GPU or page-locked on the host.
type memory struct {
	device *Device
	size   int64
	at     driver.Pointer
	region *offheap.Region // nil on the GPU
}

// Alloc reserves memory on the GPU.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("%s: %d bytes asked", d.name, bytes)
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%s: %d bytes asked of a closed device", d.name, bytes)
	}
	full := &device.OutOfMemoryError{Device: d.name, Asked: bytes, Allocated: d.held, Limit: d.limit}
	if bytes > d.limit-d.held {
		return nil, full
	}
	m := &memory{device: d, size: bytes}
	if bytes > 0 {
		at, err := d.lib.CUDA.Alloc(bytes)
		var answer *driver.Error
		if errors.As(err, &answer) && answer.Code == driver.OutOfMemory {
			return nil, fmt.Errorf("%w (another program holds memory of the GPU: %w)", full, err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %d bytes: %w", d.name, bytes, err)
		}
		m.at = at
	}
	if d.held == 0 {
		d.peak = 0
	}
	d.held += bytes
	d.paged += paged(bytes)
	d.peak = max(d.peak, d.held)
	d.live[m] = true
	return m, nil
}

// paged is what the driver allocates for so many bytes.
func paged(bytes int64) int64 { return (bytes + page - 1) / page * page }

// hostShare is how many page-locked bytes take one byte of the GPU's page table: 8 bytes per
// 4 KiB.
const hostShare = 4096 / 8

// firstRuns is what the driver allocates when queues open and kernels run for the first time.
// On an H200 it was up to one page in most runs, and four to ten where graphs of 1,300 to
// 10,600 launches were captured, about 4 KiB per launch; captured graphs are smaller now.
const firstRuns = 5 * page

// Footprint is how much memory of the GPU the driver will count for this program after so
// many more bytes are allocated on it and so many page-locked on the host. The kernels that
// will run must have been prepared.
func (d *Device) Footprint(gpu, host int64) int64 {
	overhead := d.Info().Overhead
	d.mu.Lock()
	defer d.mu.Unlock()
	return overhead + d.paged + paged(gpu) + paged(host/hostShare) + firstRuns
}

// HostAlloc reserves page-locked host memory, which the GPU copies at full speed.
func (d *Device) HostAlloc(bytes int64) (device.Memory, error) {
	m, err := d.pinned(bytes)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.Join(fmt.Errorf("%s: %d bytes asked of a closed device", d.name, bytes), m.release())
	}
	d.live[m] = true
	return m, nil
}

// pinned allocates page-locked memory that Close does not check for leaks.
func (d *Device) pinned(bytes int64) (*memory, error) {
	region, err := offheap.Alloc(bytes, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.name, err)
	}
	m := &memory{device: d, size: bytes, region: region}
	if err := m.lock(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: page-locking %d bytes: %w", d.name, bytes, err), region.Free())
	}
	return m, nil
}

// lock touches the pages, which is quick from several threads, and locks them.
func (m *memory) lock() error {
	host := m.region.Bytes()
	if len(host) == 0 {
		return nil
	}
	if err := m.device.enter(); err != nil {
		return err
	}
	defer m.device.leave()
	touch(host)
	m.at = driver.Pointer(uintptr(unsafe.Pointer(unsafe.SliceData(host))))
	return m.device.lib.CUDA.Register(host)
}

// touch writes to every page, so that the system backs it with memory.
func touch(b []byte) {
	const page, part = 4096, 64 << 20
	var group sync.WaitGroup
	for from := 0; from < len(b); from += part {
		group.Go(func() {
			for i := from; i < min(from+part, len(b)); i += page {
				b[i] = 0
			}
		})
	}
	group.Wait()
}

// Size is what was asked for.
func (m *memory) Size() int64 { return m.size }

// Host is the memory where the CPU reaches it.
func (m *memory) Host() []byte {
	if m.region == nil {
		return nil
	}
	return m.region.Bytes()
}

func (m *memory) kind() string {
	if m.region != nil {
		return "host"
	}
	return "device"
}

// Free gives the memory back. Nothing queued may still use it.
func (m *memory) Free() error {
	d := m.device
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	d.mu.Lock()
	known := d.live[m]
	delete(d.live, m)
	if known && m.region == nil {
		d.held -= m.size
		d.paged -= paged(m.size)
	}
	d.mu.Unlock()
	if !known {
		return fmt.Errorf("%s: freeing %d bytes of %s memory that was freed before", d.name, m.size, m.kind())
	}
	return m.release()
}

// release gives the memory back to the system. The context must be current.
func (m *memory) release() error {
	cuda := m.device.lib.CUDA
	if m.region == nil {
		if m.at == 0 {
			return nil
		}
		return m.device.quiet(cuda.Free(m.at))
	}
	var err error
	if m.at != 0 {
		err = m.device.quiet(cuda.Unregister(m.region.Bytes()))
	}
	return errors.Join(err, m.region.Free())
}

// address is where the GPU finds a buffer. It reaches host memory of other devices too, slowly.
func address(b device.Buffer) (driver.Pointer, error) {
	if err := b.Check(); err != nil {
		return 0, err
	}
	if m, ours := b.Memory.(*memory); ours {
		return m.at + driver.Pointer(b.Offset), nil
	}
	host := b.Host()
	if host == nil {
		return 0, fmt.Errorf("is in memory of another device")
	}
	return driver.Pointer(uintptr(unsafe.Pointer(unsafe.SliceData(host)))), nil
}

// onGPU refuses buffers kernels cannot reach.
func onGPU(b device.Buffer) error {
	if _, ours := b.Memory.(*memory); !ours && b.Memory != nil {
		return fmt.Errorf("is in memory of another device")
	}
	return b.Check()
}

// Allocated is how many bytes Alloc has given now, and the most that were since nothing was.
func (d *Device) Allocated() (now, most int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held, d.peak
}

// Memory is what the driver says of the whole GPU now: all programs' together.
func (d *Device) Memory() (free, total int64, err error) {
	if err := d.enter(); err != nil {
		return 0, 0, err
	}
	defer d.leave()
	if free, total, err = d.lib.CUDA.MemoryInfo(); err != nil {
		return 0, 0, fmt.Errorf("%s: asking for its memory: %w", d.name, err)
	}
	return free, total, nil
}

// Used is how much memory of the GPU the driver counts for this program now: all in use but
// what other programs had when the device was opened, or since less is left than this one has allocated.
func (d *Device) Used() (int64, error) {
	free, total, err := d.Memory()
	if err != nil {
		return 0, err
	}
	used := total - free
	d.mu.Lock()
	defer d.mu.Unlock()
	if used-d.others < d.held { // another program has ended
		d.others = min(d.others, d.usedByOthers(used))
	}
	return max(0, used-d.others), nil
}

// aloneBelow is how much of a GPU is taken for this program's alone where nobody can say whose
// it is; else, typicalContext of it is.
const (
	aloneBelow     = 1 << 30
	typicalContext = 614 << 20
)

// usedByOthers is what other programs have of the memory that is in use, as the driver counts
// by process. Shares of a GPU in one process count as one program.
func (d *Device) usedByOthers(used int64) int64 {
	if d.lib.NVML != nil {
		if address, err := d.Address(); err == nil {
			if own, known := d.lib.NVML.Used(address, os.Getpid()); known {
				return max(0, used-own)
			}
		}
	}
	if used <= aloneBelow {
		return 0
	}
	return used - typicalContext
}
