package hostqueue

import (
	"sync"
	"time"

	"spillway/device"
	"spillway/internal/stopwatch"
)

// epoch is zero on the clock of all events.
var epoch = stopwatch.Now()

// Now is the time on the clock of all events.
func Now() time.Duration { return stopwatch.Since(epoch) }

// timeOf is when an event happened that was waited for. Events of other backends have clocks
// of their own; for them it is now.
func timeOf(e device.HostEvent) time.Duration {
	if own, ours := e.(*Event); ours {
		return own.Time()
	}
	return Now()
}

// Event counts its records: those asked for and those that have happened. Records of one
// event may come from several queues; who waits for the latest waits until the record of
// that number has happened.
type Event struct {
	mu      sync.Mutex
	changed *sync.Cond
	awaited int // goroutines that wait for changed
	issued  uint64
	done    uint64
	at      time.Duration
	waiting []waiter // to be called, in the order they came
}

// waiter is called when a record has happened.
type waiter struct {
	record uint64
	call   device.Woken
	number uint32
}

// NewEvent makes an event, not yet recorded.
func NewEvent() *Event {
	e := &Event{}
	e.changed = sync.NewCond(&e.mu)
	return e
}

// Time is when it was last recorded, on a clock that all events of the process share.
func (e *Event) Time() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
}

// HostTime implements device.HostTimed.
func (e *Event) HostTime() time.Time { return epoch.Add(e.Time()) }

// issue numbers a new record.
func (e *Event) issue() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.issued++
	return e.issued
}

// Issued implements device.HostEvent.
func (e *Event) Issued() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.issued
}

// record says that a record has happened, and returns whether a goroutine waited for it.
func (e *Event) record(count uint64, at time.Duration) (awaited bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if count > e.done {
		e.done, e.at = count, at
	}
	e.changed.Broadcast()
	left := e.waiting[:0]
	for _, w := range e.waiting {
		if w.record <= e.done {
			w.call.Wake(w.number)
		} else {
			left = append(left, w)
		}
	}
	clear(e.waiting[len(left):])
	e.waiting = left
	return e.awaited > 0
}

// Notify implements device.Notifier. Whoever records the event calls, so that nobody has to be scheduled.
func (e *Event) Notify(record uint64, w device.Woken, number uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done >= record {
		w.Wake(number)
		return
	}
	e.waiting = append(e.waiting, waiter{record, w, number})
}

// Await implements device.HostEvent.
func (e *Event) Await(record uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.done < record {
		e.awaited++
		e.changed.Wait()
		e.awaited--
	}
}
