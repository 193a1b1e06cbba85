package executor_test

import (
	"context"
	"testing"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/executor"
	"spillway/plan"
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
// looks at the host's clock around it. Where another program takes the core during a look, clocks are
// off by as much, so several iterations are tried; clocks that are not aligned are an hour apart in all.
func TestClocksAreAligned(t *testing.T) {
	p := streamed(t)
	began := time.Now()
	dev := &drifting{Device: cpu.Open(cpu.Options{Threads: 1}), clock: func(at time.Time) time.Duration {
		return time.Hour + at.Sub(began)*102/100
	}}
	e := prepared(t, p, dev)
	iterate(t, e, 0)
	sink := trace.NewRing(len(p.Instructions))
	const exact, tries = 2 * time.Millisecond, 200
	for n := 1; ; n++ {
		sink.Reset()
		earliest := time.Now()
		if err := e.Trace(sink); err != nil {
			t.Fatal(err)
		}
		latest := time.Now() // the trace counts from a moment between the two
		before := time.Now()
		iterate(t, e, n)
		after := time.Now()
		var first, last int64 = 1 << 62, 0
		for _, ev := range sink.Events() {
			first, last = min(first, ev.Start), max(last, ev.End)
		}
		if last <= first {
			t.Fatalf("the trace lies between %v and %v", time.Duration(first), time.Duration(last))
		}
		early, late := before.Sub(latest)-time.Duration(first), time.Duration(last)-after.Sub(earliest)
		if early <= exact && late <= exact {
			break
		}
		if n == tries {
			t.Fatalf("by the trace an iteration began %v before the host asked for it, and ended %v after the host saw the end", early, late)
		}
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
	began := time.Now() // the trace counts from a moment after it
	if err := e.Trace(ring); err != nil {
		t.Fatal(err)
	}
	if err := e.Iterate(context.Background(), executor.IterationArgs{}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	for i, ev := range ring.Events() {
		if ev.Start < 0 || ev.End > int64(took) {
			t.Errorf("instruction %d ran from %v to %v, all took %v", i, time.Duration(ev.Start), time.Duration(ev.End), took)
		}
	}
}

// On a GPU, a traced iteration lies between two CUDA events that are recorded around it, fills the time
// between them, and what waits for an instruction begins after it, to 20 µs.
func TestTimelineOfAGPU(t *testing.T) {
	dev, err := device.Open("cuda:0", device.Options{})
	if err != nil {
		t.Skip("no GPU: ", err)
	}
	t.Cleanup(func() { dev.Close() }) // after the executor
	p := streamedOn(t, dev)
	e := prepared(t, p, dev)
	own, err := dev.Queue("own")
	if err != nil {
		t.Fatal(err)
	}
	mark := func() device.Elapser {
		ev, err := dev.Event()
		if err == nil {
			err = own.Record(ev)
		}
		if err == nil {
			err = own.SyncTo(ev)
		}
		if err != nil {
			t.Fatal(err)
		}
		return ev.(device.Elapser)
	}
	for i := range 4 {
		iterate(t, e, i)
	}
	ring := trace.NewRing(len(p.Instructions))
	zero := time.Now() // the trace counts from a moment after it
	if err := e.Trace(ring); err != nil {
		t.Fatal(err)
	}
	setup := time.Since(zero)
	iterate(t, e, 4)
	ring.Reset()
	before := mark()
	began := time.Now()
	iterate(t, e, 5)
	wall := time.Since(began)
	between := mark().Since(before)
	var first, last int64 = 1 << 62, 0
	events := ring.Events()
	for i, ev := range events {
		if p.Instructions[i].Verb != plan.Free {
			first, last = min(first, ev.Start), max(last, ev.End)
		}
		for _, a := range p.Instructions[i].After {
			if early := events[a].End - ev.Start; early > int64(20*time.Microsecond) {
				t.Errorf("instruction %d began %v before instruction %d ended", i, time.Duration(early), a)
			}
		}
	}
	// On the host's clock, nothing began before the host asked for it or ended after it saw the end.
	const aligned = int64(20 * time.Microsecond)
	early, late := int64(began.Sub(zero)-setup)-first, last-int64(began.Sub(zero)+wall)
	if early > aligned || late > aligned {
		t.Errorf("by the trace it began %v before the host asked, and ended %v after the host saw the end", time.Duration(early), time.Duration(late))
	}
	span := time.Duration(last - first)
	t.Logf("%d instructions take %v by their trace; by CUDA events around them %v, by the host %v; they begin %v after the host asked, and end %v before it saw the end", len(events), span, between, wall, time.Duration(-early), time.Duration(-late))
	if span > between || between-span > 5*time.Millisecond || span < 10*time.Microsecond {
		t.Errorf("%v traced, %v between two CUDA events around it", span, between)
	}
	if err := own.Close(); err != nil {
		t.Error(err)
	}
}
