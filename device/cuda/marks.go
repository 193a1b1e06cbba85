package cuda

import "spillway/device/cuda/driver"

// The driver queues about a thousand launches per stream. Launching more blocks the caller
// in a busy loop, on a core that updates on the CPU then lack. So a queue records an event
// every markEvery launches and stays at most openMarks of them ahead: it waits for the
// oldest, and that wait sleeps.

const (
	markEvery = 256 // launches
	openMarks = 3   // that a queue may be ahead
)

// marks are the events of a queue that bound how far launches run ahead, used in turn.
type marks struct {
	events  [openMarks]driver.Event
	made    int // events recorded so far
	between int // launches since the last event
}

// mark counts launches, and waits where they run too far ahead. While a graph is captured
// nothing runs, so nothing is counted. The context must be current.
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
	} else if err := q.syncError(q.device.lib.CUDA.SyncEvent(*e, q.device.poll())); err != nil {
		return err
	}
	m.made, m.between = m.made+1, 0
	return q.device.lib.CUDA.Record(*e, q.stream)
}
