// Package hostqueue is the queue and the event of backends whose work is done by goroutines
// of this process: the CPU and the disk.
//
// Queues of such backends wait for each other's events as for their own, and all events have
// one clock. A backend whose queues are elsewhere, such as CUDA, joins in by giving its
// events the two methods of device.HostEvent.
package hostqueue

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"spillway/device"
)

// Queue is a goroutine that does work of type W in the order it was given. After an error it
// skips work until Sync or SyncTo has reported it; events are still recorded, so that nobody
// waits for ever.
type Queue[W any] struct {
	name     string
	do       func(W) error
	commands chan command[W]
	ended    chan struct{}

	syncing sync.Mutex // one Sync at a time
	synced  chan error

	closing sync.RWMutex // held for writing by End, for reading while queueing
	closed  bool

	ready  time.Duration         // see Ready
	failed atomic.Pointer[error] // the first error that was not reported
}

// capacity is how many commands a queue takes before its user has to wait. A command waits
// only for records queued before it, so a full queue always empties.
const capacity = 1024

type verb uint8

const (
	work verb = iota
	record
	wait
	syncUp
	until
)

// command is one thing to do. Commands are queued by value, so that queueing allocates nothing.
type command[W any] struct {
	verb  verb
	work  W
	own   *Event           // to record
	event device.HostEvent // to wait for
	count uint64           // of the event: the record to make or to wait for
	ctx   context.Context  // that ends work
	put   time.Duration    // when it was queued
}

// New starts a queue; its name stands in errors.
func New[W any](name string, do func(W) error) *Queue[W] {
	q := &Queue[W]{
		name: name, do: do, commands: make(chan command[W], capacity),
		ended: make(chan struct{}), synced: make(chan error),
	}
	go q.serve()
	return q
}

// Put queues work.
func (q *Queue[W]) Put(w W) error { return q.put(command[W]{verb: work, work: w}) }

func (q *Queue[W]) put(c command[W]) error {
	q.closing.RLock()
	defer q.closing.RUnlock()
	if q.closed {
		return fmt.Errorf("%s is closed", q.name)
	}
	c.put = Now()
	q.commands <- c
	return nil
}

// Record marks the event, which must be of this package, when all before it is done.
func (q *Queue[W]) Record(e device.Event) error {
	own, ours := e.(*Event)
	if !ours {
		return fmt.Errorf("%s: record of an event of another backend (%T)", q.name, e)
	}
	return q.put(command[W]{verb: record, own: own, count: own.issue()})
}

// Wait holds the queue until the event's latest record has happened, whatever
// backend of this process the event is of.
func (q *Queue[W]) Wait(e device.Event) error {
	h, ok := e.(device.HostEvent)
	if !ok {
		return fmt.Errorf("%s: wait for an event that goroutines cannot wait for (%T)", q.name, e)
	}
	return q.put(command[W]{verb: wait, event: h, count: h.Issued()})
}

// Sync returns when all is done, with the first error since the last Sync.
func (q *Queue[W]) Sync() error {
	q.syncing.Lock()
	defer q.syncing.Unlock()
	if err := q.put(command[W]{verb: syncUp}); err != nil {
		return err
	}
	return <-q.synced
}

// SyncTo returns when the event's latest record, which is this queue's, has happened, with
// the first error met and not yet reported.
func (q *Queue[W]) SyncTo(e device.Event) error {
	own, ours := e.(*Event)
	if !ours {
		return fmt.Errorf("%s: waiting for an event of another backend (%T)", q.name, e)
	}
	own.Await(own.Issued())
	return q.report()
}

// Until has work that is queued from now on skipped once a context has ended, as after an error, which
// is that of the context then. Nil has all work done again.
func (q *Queue[W]) Until(ctx context.Context) error { return q.put(command[W]{verb: until, ctx: ctx}) }

// report takes the error that was not reported yet.
func (q *Queue[W]) report() error {
	if err := q.failed.Swap(nil); err != nil {
		return *err
	}
	return nil
}

// End does what is queued and stops the queue. A second End does nothing.
func (q *Queue[W]) End() {
	q.closing.Lock()
	if !q.closed {
		q.closed = true
		close(q.commands)
	}
	q.closing.Unlock()
	<-q.ended
}

// Ready is when the current work could have begun, had the queue been idle: it was queued,
// and what it waits for had happened. Only the work itself may ask.
func (q *Queue[W]) Ready() time.Duration { return q.ready }

// serve is the goroutine.
func (q *Queue[W]) serve() {
	defer close(q.ended)
	var ends context.Context
	for c := range q.commands {
		q.ready = max(q.ready, c.put)
		switch c.verb {
		case record:
			if c.own.record(c.count, Now()) {
				runtime.Gosched() // who waited has a core at once: where kernels keep all of them, it is not given one for 10 ms
			}
		case wait:
			c.event.Await(c.count)
			q.ready = max(q.ready, timeOf(c.event))
		case syncUp:
			q.synced <- q.report()
		case until:
			ends = c.ctx
		case work:
			if ends != nil && ends.Err() != nil {
				err := ends.Err()
				q.failed.CompareAndSwap(nil, &err)
			}
			if q.failed.Load() == nil {
				q.attempt(c.work)
			}
		}
	}
}

// attempt does work and stores its error; only that allocates.
func (q *Queue[W]) attempt(w W) {
	if err := q.do(w); err != nil {
		first := err
		q.failed.Store(&first)
	}
}
