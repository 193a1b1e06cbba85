package devicetest

import (
	"math/rand/v2"
	"sync"
	"time"

	"spillway/device"
)

// delayed makes a device of another whose queues really run later, each in its
// own goroutine and now and then slow, so that what is not ordered shows. The
// faults are promises it can be made to break.
type delayed struct {
	device.Device
	faults faults
	mu     sync.Mutex // one operation at a time, so that faults are no data races
}

type faults struct {
	ignoreWait     bool // Wait does nothing
	waitForLast    bool // Wait means the latest record when it runs
	overtake       bool // every second operation of a queue overtakes the one before
	forgetErrors   bool // Sync never has an error
	repeatErrors   bool // Sync has the same error for ever
	runAfterErrors bool // operations after an error are not skipped
	syncToNothing  bool // SyncTo does not wait
	syncToAll      bool // SyncTo waits for what is behind the event too
}

func (d *delayed) Queue(name string) (device.Queue, error) {
	inner, err := d.Device.Queue(name)
	if err != nil {
		return nil, err
	}
	q := &delayedQueue{device: d, inner: inner, faults: d.faults, work: make(chan func(), 1000), synced: make(chan func())}
	go q.run()
	return q, nil
}

func (d *delayed) Event() (device.Event, error) {
	inner, err := d.Device.Event()
	return &delayedEvent{Event: inner}, err
}

// delayedEvent holds a channel that its latest Record closes when it happens.
type delayedEvent struct {
	device.Event
	mu     sync.Mutex
	latest chan struct{}
}

func (e *delayedEvent) last() chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latest
}

type delayedQueue struct {
	device   *delayed
	inner    device.Queue
	faults   faults
	work     chan func()
	synced   chan func() // what Sync waits for
	err      error
	overtook func() // held back by the fault of that name
}

// run does what it is given. Where the fault is that nobody waits for it, it does so as late as it may, when Sync is
// called, or it would be done in time now and then.
func (q *delayedQueue) run() {
	late := q.faults.ignoreWait || q.faults.syncToNothing
	given := q.work
	if late {
		given = nil
	}
	for {
		select {
		case f := <-given:
			f()
		case f, open := <-q.synced:
			for len(q.work) > 0 {
				(<-q.work)()
			}
			if !open {
				return
			}
			f()
		}
	}
}

// later queues an operation that is skipped after an error.
func (q *delayedQueue) later(f func() error) error {
	run := func() {
		q.device.mu.Lock()
		defer q.device.mu.Unlock()
		if q.err == nil || q.faults.runAfterErrors {
			if err := f(); q.err == nil {
				q.err = err
			}
		}
	}
	slow := rand.IntN(4) == 0
	q.work <- func() {
		if slow {
			time.Sleep(100 * time.Microsecond)
		}
		if q.faults.overtake && q.overtook == nil {
			q.overtook = run
			return
		}
		run()
		q.catchUp()
	}
	return nil
}

// catchUp runs what was overtaken.
func (q *delayedQueue) catchUp() {
	if q.overtook != nil {
		q.overtook()
		q.overtook = nil
	}
}

func (q *delayedQueue) Copy(dst, src device.Buffer) error {
	return q.later(func() error { return q.inner.Copy(dst, src) })
}

func (q *delayedQueue) Launch(k device.Kernel, l *device.Launch) error {
	return q.later(func() error { return q.inner.Launch(k, l) })
}

// Record happens after an error too: others may wait for it.
func (q *delayedQueue) Record(e device.Event) error {
	event, happened := e.(*delayedEvent), make(chan struct{})
	event.mu.Lock()
	event.latest = happened
	event.mu.Unlock()
	q.work <- func() {
		q.inner.Record(event.Event)
		close(happened)
	}
	return nil
}

func (q *delayedQueue) Wait(e device.Event) error {
	if h, other := e.(device.HostEvent); other {
		record := h.Issued()
		q.work <- func() { h.Await(record) }
		return nil
	}
	event := e.(*delayedEvent)
	happened := event.last()
	q.work <- func() {
		if q.faults.waitForLast {
			time.Sleep(time.Millisecond)
			happened = event.last()
		}
		if happened != nil && !q.faults.ignoreWait {
			<-happened
		}
	}
	return nil
}

func (q *delayedQueue) Sync() error {
	done := make(chan struct{})
	q.synced <- func() {
		q.catchUp()
		close(done)
	}
	<-done
	return q.report()
}

func (q *delayedQueue) SyncTo(e device.Event) error {
	if q.faults.syncToAll {
		return q.Sync()
	}
	if happened := e.(*delayedEvent).last(); happened != nil && !q.faults.syncToNothing {
		<-happened
	}
	return q.report()
}

func (q *delayedQueue) report() error {
	q.device.mu.Lock()
	defer q.device.mu.Unlock()
	err := q.err
	if !q.faults.repeatErrors {
		q.err = nil
	}
	if q.faults.forgetErrors {
		return nil
	}
	return err
}

func (q *delayedQueue) Close() error {
	err := q.Sync()
	close(q.synced)
	return err
}
