package executor_test

import (
	"context"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/trace"
)

// drifting is a device whose events are by a clock of its own, which began long ago and gains two
// percent. Its times are rounded as those of a GPU are, differences of them are not.
type drifting struct {
	device.Device
	clock func(time.Time) time.Duration
}

type driftingEvent struct {
	device.Event
	d *drifting
}

func (d *drifting) Event() (device.Event, error) {
	ev, err := d.Device.Event()
	return driftingEvent{ev, d}, err
}

func (e driftingEvent) exact() time.Duration { return e.d.clock(e.Event.(device.HostTimed).HostTime()) }

func (e driftingEvent) Time() time.Duration { return e.exact().Round(250 * time.Microsecond) }

func (e driftingEvent) Since(from device.Event) time.Duration {
	return e.exact() - from.(driftingEvent).exact()
}

func (e driftingEvent) inner() device.HostEvent { return e.Event.(device.HostEvent) }

func (e driftingEvent) Issued() uint64 { return e.inner().Issued() }
func (e driftingEvent) Await(n uint64) { e.inner().Await(n) }

// driftingQueue hands events through.
type driftingQueue struct{ device.Queue }

func unwrapped(ev device.Event) device.Event {
	if e, ok := ev.(driftingEvent); ok {
		return e.Event
	}
	return ev
}

func (q driftingQueue) Record(ev device.Event) error { return q.Queue.Record(unwrapped(ev)) }
func (q driftingQueue) Wait(ev device.Event) error   { return q.Queue.Wait(unwrapped(ev)) }
func (q driftingQueue) SyncTo(ev device.Event) error { return q.Queue.SyncTo(unwrapped(ev)) }

func (d *drifting) Queue(name string) (device.Queue, error) {
	q, err := d.Device.Queue(name)
	return driftingQueue{q}, err
}

// Events of a device with a clock of its own are shown on the host's: an iteration lies between the
// looks at the host's clock around it.
func TestClocksAreAligned(t *testing.T) {
	p := streamed(t)
	began := time.Now()
	dev := &drifting{Device: cpu.Open(cpu.Options{Threads: 1}), clock: func(at time.Time) time.Duration {
		return time.Hour + at.Sub(began)*102/100
	}}
	e := prepared(t, p, dev)
	iterate(t, e, 0)
	sink := trace.NewRing(len(p.Instructions))
	if err := e.Trace(sink); err != nil {
		t.Fatal(err)
	}
	opened := time.Now() // the trace counts from just before
	before := time.Since(opened)
	iterate(t, e, 1)
	after := time.Since(opened)
	var first, last int64 = 1 << 62, 0
	for _, ev := range sink.Events() {
		first, last = min(first, ev.Start), max(last, ev.End)
	}
	const slack = int64(2 * time.Millisecond) // of this test's own looks
	if first < int64(before)-slack || last > int64(after)+slack || last <= first {
		t.Errorf("the iteration lies between %v and %v, the trace between %v and %v", before, after, time.Duration(first), time.Duration(last))
	}
	if err := e.Trace(nil); err != nil {
		t.Fatal(err)
	}
}

// What the host records needs no clock but its own.
func TestIterationsOfHostDevicesShareAClock(t *testing.T) {
	p := streamed(t)
	e := prepared(t, p, cpu.Open(cpu.Options{Threads: 1}))
	ring := trace.NewRing(len(p.Instructions))
	if err := e.Trace(ring); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	for i, ev := range ring.Events() {
		if ev.Start < 0 || ev.End > int64(took)+int64(time.Millisecond) {
			t.Errorf("instruction %d ran from %v to %v, the iteration took %v", i, time.Duration(ev.Start), time.Duration(ev.End), took)
		}
	}
}
