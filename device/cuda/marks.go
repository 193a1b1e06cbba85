package cuda

import "spillway/device/cuda/driver"

// A GPU takes about a thousand launches. Whoever hands it more is held up by the driver,
// on a core that the host's updates then lack. So a queue marks the launches it is given
// and does not run further ahead than some marks: it waits for the oldest, which sleeps
// when it takes long.

const (
	markEvery = 256 // launches
	openMarks = 3   // that a queue may be ahead
)

// marks are events of a queue, used in turn.
type marks struct {
	events  [openMarks]driver.Event
	made    int // marks so far
	between int // launches since the last one
}

// mark counts launches, and waits where they run too far ahead. What is captured is not done
// now, so that it counts for nothing. The context must be current.
func (q *queue) mark(launches int) (err error) {
	if q.capturing != nil {
		return nil
	}
	m := &q.marks
	if m.between += launches; m.between < markEvery {
		return nil
	}
	e := &m.events[m.made%openMarks]
	if m.made < openMarks {
		if *e, err = q.device.eventHandle(); err != nil {
			return err
		}
	} else if err := q.syncError(q.device.lib.CUDA.SyncEvent(*e)); err != nil {
		return err
	}
	m.made, m.between = m.made+1, 0
	return q.device.lib.CUDA.Record(*e, q.stream)
}

// spare lets others have the events.
func (m *marks) spare(d *Device) {
	for _, e := range m.events[:min(m.made, openMarks)] {
		d.spareEvent(e)
	}
}
