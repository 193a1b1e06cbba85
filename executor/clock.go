package executor

import (
	"fmt"
	"time"

	"spillway/device"
	"spillway/internal/stopwatch"
	"spillway/plan"
)

// clock shows when events of a device happened, on the clock that all devices of a trace share.
// Events that the host records need nothing. A GPU counts by a crystal of its own: at the
// beginning and at the end of an iteration, while nothing runs, an event is recorded between
// two looks at the host's clock, and what lies between follows.
type clock struct {
	queue      device.Queue
	events     [2]device.Event // take turns
	begin, end moment
	elapses    bool // events are device.Elapser, on a clock of their own
	host       bool // events are device.HostTimed
}

// moment is an event, and when the host says it was.
type moment struct {
	event device.Event
	host  time.Duration // since the trace began
	width time.Duration // of what the host knows: between its two looks
}

const (
	// looks is how often a moment is tried; the one with the least doubt counts.
	looks = 8
	// driftAfter is how long an iteration takes for clocks to have drifted apart by more than a
	// moment is exact to: crystals differ by up to 50 in a million.
	driftAfter = 100 * time.Millisecond
)

func newClock(d device.Device, q device.Queue) (c *clock, err error) {
	c = &clock{queue: q}
	for i := range c.events {
		if c.events[i], err = d.Event(); err != nil {
			return nil, err
		}
	}
	_, c.elapses = c.events[0].(device.Elapser)
	_, c.host = c.events[0].(device.HostTimed)
	return c, nil
}

// look finds a moment of the device, which is idle. began is when the trace began.
func (c *clock) look(d device.Device, began time.Time) (best moment, err error) {
	for range looks {
		ev, err := d.Event()
		if err != nil {
			return best, err
		}
		before := stopwatch.Now()
		if err := c.queue.Record(ev); err != nil {
			return best, err
		}
		if err := c.queue.SyncTo(ev); err != nil {
			return best, err
		}
		after := stopwatch.Now()
		if m := (moment{ev, before.Add(after.Sub(before) / 2).Sub(began), after.Sub(before)}); best.event == nil || m.width < best.width {
			best = m
		}
	}
	return best, nil
}

// at is when an event happened, since the trace began.
func (c *clock) at(ev device.Event, began time.Time) time.Duration {
	if h, ok := ev.(device.HostTimed); ok {
		return h.HostTime().Sub(began)
	}
	e, ok := ev.(device.Elapser)
	if !ok || c.begin.event == nil {
		return ev.Time()
	}
	since := e.Since(c.begin.event)
	if c.end.event == nil {
		return c.begin.host + since
	}
	took := c.end.event.(device.Elapser).Since(c.begin.event)
	if took < driftAfter {
		return c.begin.host + since
	}
	ahead := float64(c.end.host-c.begin.host-took) / float64(took) // of the host's clock, for each second
	return c.begin.host + since + time.Duration(ahead*float64(since))
}

// clocks are those of the devices of a trace.
type clocks struct {
	began   time.Time
	devices []*clock
	// shared: all devices can be shown on the host's clock. Else each counts from when the
	// iteration began, which an event says.
	shared bool
}

func newClocks(m *memory) (c clocks, err error) {
	c = clocks{began: stopwatch.Now(), shared: true}
	for i, d := range m.devices {
		one, err := newClock(d, m.queue(i, plan.Compute))
		if err != nil {
			return c, fmt.Errorf("tracing: %w", err)
		}
		c.devices, c.shared = append(c.devices, one), c.shared && (one.host || one.elapses)
	}
	return c, nil
}

// begin is called before an iteration, while nothing runs.
func (c *clocks) begin(m *memory) error {
	for i, d := range c.devices {
		if !c.shared {
			if err := d.queue.Record(d.events[0]); err != nil {
				return fmt.Errorf("tracing: %w", err)
			}
			d.begin = moment{event: d.events[0]}
			continue
		}
		if d.host {
			continue
		}
		var err error
		if d.begin, err = d.look(m.devices[i], c.began); err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
		d.end = moment{}
	}
	return nil
}

// end is called after an iteration, when nothing runs any more.
func (c *clocks) end(m *memory) error {
	for i, d := range c.devices {
		if !c.shared || d.host {
			continue
		}
		var err error
		if d.end, err = d.look(m.devices[i], c.began); err != nil {
			return fmt.Errorf("tracing: %w", err)
		}
	}
	return nil
}

// at is when an event of a device happened, in nanoseconds since the trace began; where clocks
// are not shared, by that of the first device.
func (c *clocks) at(device int, ev device.Event) int64 {
	if c.shared {
		return int64(c.devices[device].at(ev, c.began))
	}
	ahead := c.devices[device].begin.event.Time() - c.devices[0].begin.event.Time()
	return int64(ev.Time() - ahead)
}
