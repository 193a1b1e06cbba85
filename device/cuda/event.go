package cuda

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"spillway/device"
	"spillway/device/cuda/driver"
)

// event is an event of the driver. Its handle is reused when nobody refers to it any more.
type event struct {
	device  *Device
	handle  driver.Event
	records atomic.Uint64 // asked for
}

// Event makes an event, not yet recorded. A queue that waits for an event that was
// never recorded does not wait.
func (d *Device) Event() (device.Event, error) {
	h, err := d.eventHandle()
	if err != nil {
		return nil, fmt.Errorf("%s: an event: %w", d.name, err)
	}
	e := &event{device: d, handle: h}
	runtime.AddCleanup(e, d.spareEvent, h)
	return e, nil
}

// eventHandle reuses a free handle, or makes one.
func (d *Device) eventHandle() (driver.Event, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, fmt.Errorf("the device is closed")
	}
	if n := len(d.spare); n > 0 {
		h := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return h, nil
	}
	h, err := d.lib.CUDA.NewEvent()
	if err == nil {
		d.events = append(d.events, h)
	}
	return h, err
}

func (d *Device) spareEvent(h driver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spare = append(d.spare, h)
}

// Time is when it was last recorded, since the device was opened; zero if it was not. The driver
// has it in 24 bits, so that after an hour it is exact to a quarter of a millisecond; Since is
// exact to half a microsecond.
func (e *event) Time() time.Duration { return e.since(e.device.origin) }

// Since implements device.Elapser.
func (e *event) Since(from device.Event) time.Duration {
	if f, ok := from.(*event); ok && f.device == e.device {
		return e.since(f.handle)
	}
	return e.Time() - from.Time()
}

func (e *event) since(from driver.Event) (t time.Duration) {
	err := e.device.within(func() (err error) {
		t, err = e.device.lib.CUDA.Elapsed(from, e.handle)
		return err
	})
	if err != nil {
		return 0
	}
	return t
}
