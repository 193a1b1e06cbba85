package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"spillway/device"
	"spillway/device/cuda/driver"
)

// event is an event of the driver. Its handle is reused when nobody refers to it any more.
type event struct {
	device *Device
	*recorded
	records atomic.Uint64 // asked for
}

// recorded is the handle of an event, and whether its latest record is a part of a graph: outside of that graph the driver refuses to wait
// for such an event, so its handle is not given to others.
type recorded struct {
	handle  driver.Event
	inGraph atomic.Bool
}

// Event makes an event, not yet recorded. A queue that waits for an event that was
// never recorded does not wait.
func (d *Device) Event() (device.Event, error) {
	h, err := d.eventHandle()
	if err != nil {
		return nil, fmt.Errorf("%s: an event: %w", d.name, err)
	}
	e := &event{device: d, recorded: &recorded{handle: h}}
	runtime.AddCleanup(e, d.spare.add, e.recorded)
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
	if h := d.spare.take(); h != 0 {
		return h, nil
	}
	h, err := d.lib.CUDA.NewEvent()
	if err == nil {
		d.events = append(d.events, h)
	}
	return h, err
}

// spareEvents are handles that nobody refers to any more.
type spareEvents struct {
	mu               sync.Mutex
	usable, ofGraphs []driver.Event
}

func (s *spareEvents) add(r *recorded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.inGraph.Load() {
		s.ofGraphs = append(s.ofGraphs, r.handle)
	} else {
		s.usable = append(s.usable, r.handle)
	}
}

// take gives a handle to use, 0 for none.
func (s *spareEvents) take() (h driver.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.usable); n > 0 {
		h, s.usable = s.usable[n-1], s.usable[:n-1]
	}
	return h
}

// closeGraphEvents closes the handles whose latest record is a part of a graph. The context must be current.
func (d *Device) closeGraphEvents() (err error) {
	d.spare.mu.Lock()
	list := d.spare.ofGraphs
	d.spare.ofGraphs = nil
	d.spare.mu.Unlock()
	d.mu.Lock()
	d.events = slices.DeleteFunc(d.events, func(e driver.Event) bool { return slices.Contains(list, e) })
	d.mu.Unlock()
	for _, h := range list {
		err = errors.Join(err, d.quiet(d.lib.CUDA.CloseEvent(h)))
	}
	return err
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
