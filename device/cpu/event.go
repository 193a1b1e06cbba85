package cpu

import (
	"sync"
	"time"

	"spillway/device"
)

// event counts its records: those asked for and those that have happened. Records of
// one event may come from several queues; waiting for the latest means waiting until
// that one, by number, has happened.
type event struct {
	mu      sync.Mutex
	changed *sync.Cond
	issued  uint64
	done    uint64
	at      time.Duration
}

// Event makes an event, not yet recorded.
func (d *Device) Event() (device.Event, error) {
	e := &event{}
	e.changed = sync.NewCond(&e.mu)
	return e, nil
}

// Time is when it was last recorded, since the device was opened.
func (e *event) Time() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
}

// issue numbers a new record.
func (e *event) issue() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.issued++
	return e.issued
}

// latest is the number of the latest record asked for, 0 for none.
func (e *event) latest() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.issued
}

// record says that a record has happened.
func (e *event) record(count uint64, at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if count > e.done {
		e.done, e.at = count, at
	}
	e.changed.Broadcast()
}

// wait returns when a record has happened.
func (e *event) wait(count uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.done < count {
		e.changed.Wait()
	}
}
