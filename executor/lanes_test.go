package executor_test

import (
	"errors"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/hostqueue"
	"spillway/plan"
)

// Devices whose lanes make it show when an iteration begins before another has ended.

// outward is the CPU with a lane to the host of its own, which asks before every
// copy; what it answers is the copy's error.
type outward struct {
	device.Device
	before func() error
}

func (d *outward) Queue(name string) (device.Queue, error) {
	if name != string(plan.Out) {
		return d.Device.Queue(name)
	}
	return &outwardQueue{hostqueue.New("out", func(f func() error) error { return f() }), d}, nil
}

type outwardQueue struct {
	*hostqueue.Queue[func() error]
	d *outward
}

func (q *outwardQueue) Copy(dst, src device.Buffer) error {
	return q.Put(func() error {
		if err := q.d.before(); err != nil {
			return err
		}
		copy(dst.Host(), src.Host())
		return nil
	})
}

func (q *outwardQueue) Launch(device.Kernel, *device.Launch) error {
	return errors.New("this lane only copies")
}

func (q *outwardQueue) Close() error {
	err := q.Sync()
	q.End()
	return err
}

func newOutward(before func() error) *outward {
	return &outward{cpu.Open(cpu.Options{Threads: 1}), before}
}

// slowly is a lane whose copies take their time.
func slowly() error {
	time.Sleep(200 * time.Microsecond)
	return nil
}

// gpu is the CPU as a device whose events are like those of a GPU: who waits for
// one as a goroutine waits for its latest record when it comes to that, not for the one
// there was when it was asked to.
type gpu struct{ device.Device }

type gpuEvent struct{ *hostqueue.Event }

func (e gpuEvent) Await(uint64) { e.Event.Await(e.Issued()) }

func (c gpu) Event() (device.Event, error) { return gpuEvent{hostqueue.NewEvent()}, nil }

func (c gpu) Queue(name string) (device.Queue, error) {
	q, err := c.Device.Queue(name)
	return gpuQueue{q}, err
}

type gpuQueue struct{ device.Queue }

func (q gpuQueue) Record(e device.Event) error { return q.Queue.Record(e.(gpuEvent).Event) }
func (q gpuQueue) SyncTo(e device.Event) error { return q.Queue.SyncTo(e.(gpuEvent).Event) }

// Wait goes by the record there is now where the event is a GPU's, as streams do.
func (q gpuQueue) Wait(e device.Event) error {
	if own, ours := e.(gpuEvent); ours {
		e = own.Event
	}
	return q.Queue.Wait(e)
}
