package cpu

import (
	"fmt"
	"sync"
	"time"

	"spillway/device"
	"spillway/device/cpu/kernel"
)

// queue is a goroutine that runs commands in the order they were given. After an
// error it skips copies and launches until Sync has reported it; records still
// happen, so that nobody waits for ever.
type queue struct {
	device   *Device
	name     string
	commands chan command
	ended    chan struct{}

	syncing sync.Mutex // one Sync at a time
	synced  chan error

	closing sync.RWMutex // held for writing by Close, for reading while queueing
	closed  bool
}

// waiting is how many commands a queue takes before its user has to wait for it. A
// command waits only for records queued before it, so a full queue always empties.
const waiting = 4096

type verb uint8

const (
	copyBytes verb = iota
	launch
	record
	wait
	syncUp
)

// command is one thing to do. It is kept by value: queueing allocates nothing.
type command struct {
	verb     verb
	dst, src device.Buffer
	task     *task
	launch   *device.Launch
	event    *event
	count    uint64 // of the event: the record to make or to wait for
}

// Queue opens a queue.
func (d *Device) Queue(name string) (device.Queue, error) {
	q := &queue{
		device: d, name: name, commands: make(chan command, waiting),
		ended: make(chan struct{}), synced: make(chan error),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queues == nil {
		return nil, fmt.Errorf("cpu: queue %s asked of a closed device", name)
	}
	d.queues[q] = true
	go q.serve()
	return q, nil
}

// put queues a command.
func (q *queue) put(c command) error {
	q.closing.RLock()
	defer q.closing.RUnlock()
	if q.closed {
		return fmt.Errorf("cpu: queue %s is closed", q.name)
	}
	q.commands <- c
	return nil
}

// Copy moves bytes.
func (q *queue) Copy(dst, src device.Buffer) error {
	if dst.Bytes != src.Bytes {
		return fmt.Errorf("cpu: copy of %d bytes to %d", src.Bytes, dst.Bytes)
	}
	if err := checkBuffer(dst); err != nil {
		return fmt.Errorf("cpu: copy: the destination %w", err)
	}
	if err := checkBuffer(src); err != nil {
		return fmt.Errorf("cpu: copy: the source %w", err)
	}
	return q.put(command{verb: copyBytes, dst: dst, src: src})
}

// Launch runs a kernel.
func (q *queue) Launch(k device.Kernel, l *device.Launch) error {
	t, ours := k.(*task)
	if !ours || t.device != q.device {
		return fmt.Errorf("cpu: launch of a kernel this device did not make")
	}
	if err := t.check(l); err != nil {
		return fmt.Errorf("cpu: launch of %v: %w", t.call, err)
	}
	return q.put(command{verb: launch, task: t, launch: l})
}

// Record marks the event when all before it is done.
func (q *queue) Record(e device.Event) error {
	own, ours := e.(*event)
	if !ours {
		return fmt.Errorf("cpu: record of an event this device did not make")
	}
	return q.put(command{verb: record, event: own, count: own.issue()})
}

// Wait holds the queue until the event's latest record has happened.
func (q *queue) Wait(e device.Event) error {
	own, ours := e.(*event)
	if !ours {
		return fmt.Errorf("cpu: wait for an event this device did not make")
	}
	return q.put(command{verb: wait, event: own, count: own.latest()})
}

// Sync returns when all is done, with the first error since the last Sync.
func (q *queue) Sync() error {
	q.syncing.Lock()
	defer q.syncing.Unlock()
	if err := q.put(command{verb: syncUp}); err != nil {
		return err
	}
	return <-q.synced
}

// Close does what is queued and ends the queue.
func (q *queue) Close() error {
	err := q.Sync()
	q.device.mu.Lock()
	delete(q.device.queues, q)
	q.device.mu.Unlock()
	q.end()
	return err
}

// end stops the goroutine after what is queued.
func (q *queue) end() {
	q.closing.Lock()
	if !q.closed {
		q.closed = true
		close(q.commands)
	}
	q.closing.Unlock()
	<-q.ended
}

// serve is the life of the goroutine.
func (q *queue) serve() {
	defer close(q.ended)
	var failed error
	for c := range q.commands {
		switch c.verb {
		case record:
			c.event.record(c.count, time.Since(q.device.start))
		case wait:
			c.event.wait(c.count)
		case syncUp:
			q.synced <- failed
			failed = nil
		default:
			if failed == nil {
				failed = c.run()
			}
		}
	}
}

// run does a copy or a launch.
func (c *command) run() (err error) {
	if c.verb == launch {
		return c.task.run(c.launch)
	}
	dst, src := c.dst.Host(), c.src.Host()
	if dst == nil || src == nil {
		return fmt.Errorf("cpu: copy of %d bytes: memory was freed before the copy ran", c.dst.Bytes)
	}
	kernel.Copy(dst, src)
	return nil
}
