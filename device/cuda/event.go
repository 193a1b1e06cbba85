package cuda

import (
	"fmt"
	"runtime"
	"time"

	"spillway/device"
	"spillway/device/cuda/driver"
)

// event is one of the driver's. Its handle is used again when nobody holds it.
type event struct {
	device *Device
	handle driver.Event
}

// Event makes an event, not yet recorded. A queue that waits for an event that was
// never recorded does not wait.
func (d *Device) Event() (device.Event, error) {
	h, err := d.spareEvent()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.name, err)
	}
	e := &event{d, h}
	runtime.AddCleanup(e, d.takeBack, h)
	return e, nil
}

func (d *Device) spareEvent() (driver.Event, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	return d.lib.CUDA.NewEvent()
}

// takeBack keeps a handle for Close to give back.
func (d *Device) takeBack(h driver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.spare = append(d.spare, h)
	}
}

// Time is when it was last recorded, since the device was opened; zero if it was not.
func (e *event) Time() time.Duration {
	if err := e.device.enter(); err != nil {
		return 0
	}
	defer e.device.leave()
	t, err := e.device.lib.CUDA.Elapsed(e.device.origin, e.handle)
	if err != nil {
		return 0
	}
	return t
}
