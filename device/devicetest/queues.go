package devicetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"spillway/device"
	"spillway/device/hostqueue"
	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

// queueChecks are the promises about order, events and errors.
var queueChecks = []check{
	{name: "a queue keeps its order", bytes: 4 * 3000, onRig: checkOrder},
	{name: "events order queues", bytes: 4 * 20000, onRig: checkEvents},
	{name: "wait means the latest record at that time", bytes: 64, onRig: checkLatestRecord},
	{name: "wait for an event never recorded", bytes: 64, onRig: checkUnrecorded},
	{name: "the host waits for an event", bytes: 20000, onRig: checkSyncTo},
	{name: "what is behind an event holds nobody", bytes: 64, onRig: checkSyncToAlone},
	{name: "event times", bytes: 4 * 20000, onRig: checkTimes},
	{name: "unknown kernels", run: checkUnknownKernel},
	{name: "bad copies", bytes: 64, onRig: checkBadCopies},
	{name: "bad launches", bytes: 1024, onRig: checkBadLaunches},
	{name: "a failure is reported once", run: checkFailure},
}

// doubler is the kernel the checks order: y = 2·x of n numbers.
func doubler(r *rig, n int) device.Kernel {
	call, err := op.Make(op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.F32, Shape: shape.Of(n)})
	r.must(err)
	k, err := r.Kernel(call)
	var none *device.NoKernelError
	if errors.As(err, &none) {
		r.must(fmt.Errorf("%w: %w", errSkip, err))
	}
	r.must(err)
	return k
}

// double queues y = 2·x.
func double(r *rig, q device.Queue, k device.Kernel, y, x device.Buffer) {
	l := &device.Launch{Buffers: []device.Buffer{x, y}, Args: &op.Args{}}
	if n := k.Workspace(); n > 0 {
		l.Workspace = part(r.alloc(int(n)), 0, int(n))
	}
	r.must(q.Launch(k, l))
}

func numbers(n int, f float32) []byte {
	var b []byte
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

// checkOrder doubles from one memory to another and back, many times without
// waiting, with a copy in between.
func checkOrder(r *rig) {
	const times = 24
	n := r.bytes / 4
	k, second, third := doubler(r, n), r.alloc(4*n), r.alloc(4*n)
	r.upload(r.mem, numbers(n, 1))
	for range times {
		double(r, r.q, k, part(second, 0, 4*n), part(r.mem, 0, 4*n))
		r.must(r.q.Copy(part(third, 0, 4*n), part(second, 0, 4*n)))
		double(r, r.q, k, part(r.mem, 0, 4*n), part(third, 0, 4*n))
	}
	r.same("doubled 48 times", r.download(r.mem, 4*n), numbers(n, 1<<(2*times)))
}

// checkEvents lets a queue wait for work of another, over and over, with both
// kept busy.
func checkEvents(r *rig) {
	const rounds = 12
	n := r.bytes / 4
	k, second, result := doubler(r, n), r.alloc(4*n), r.alloc(4*n)
	other := r.queue("out")
	ready, taken := r.event(), r.event()
	r.upload(r.mem, numbers(n, 1))
	for round := range rounds {
		if round > 0 {
			r.must(r.q.Wait(taken))
		}
		double(r, r.q, k, part(second, 0, 4*n), part(r.mem, 0, 4*n))
		r.must(r.q.Copy(part(r.mem, 0, 4*n), part(second, 0, 4*n)))
		r.must(r.q.Record(ready))
		r.must(other.Wait(ready))
		r.must(other.Copy(part(result, 0, 4*n), part(r.mem, 0, 4*n)))
		r.must(other.Record(taken))
		if round%4 == 3 {
			r.must(other.Sync()) // only the second queue: the event must have held it
			r.must(r.q.Wait(taken))
			r.same(fmt.Sprintf("round %d", round), r.download(result, 4*n), numbers(n, float32(int(2)<<round)))
		}
	}
}

// checkLatestRecord records an event again behind something that waits for the
// queue that waits for its first record. Waiting for the second never ends.
func checkLatestRecord(r *rig) {
	other := r.queue("in")
	e, f := r.event(), r.event()
	for range 20 {
		r.must(r.q.Record(e))
		r.must(other.Wait(e))
		r.must(other.Record(f))
		r.must(r.q.Wait(f))
		r.must(r.q.Record(e))
	}
	r.must(other.Sync())
	r.must(r.q.Sync())
}

func checkUnrecorded(r *rig) {
	r.must(r.q.Wait(r.event()))
	r.must(r.q.Sync())
}

// checkSyncTo wants what was given before an event to be done when it was waited for,
// while more is under way behind it.
func checkSyncTo(r *rig) {
	n := r.bytes
	e, second := r.event(), r.alloc(n)
	for round := range 12 {
		want := pattern(n, round)
		r.upload(r.mem, want)
		r.must(r.q.Copy(part(second, 0, n), part(r.mem, 0, n)))
		r.must(r.q.Copy(part(r.host, 0, n), part(second, 0, n)))
		r.must(r.q.Record(e))
		for range 4 {
			r.must(r.q.Copy(part(second, 0, n), part(r.mem, 0, n)))
		}
		r.must(r.q.SyncTo(e))
		r.same(fmt.Sprintf("round %d", round), r.host.Host(), want)
	}
	r.must(r.q.Sync())
}

// checkSyncToAlone holds a queue by another backend until the host has waited for an event
// before that. Waiting for all of the queue never ends.
func checkSyncToAlone(r *rig) {
	opened := make(chan struct{})
	gate := hostqueue.New("gate", func(struct{}) error { <-opened; return nil })
	open := sync.OnceFunc(func() { close(opened) })
	r.owned = append(r.owned, func() error { open(); gate.End(); return nil })
	passed := hostqueue.NewEvent()
	r.must(errors.Join(gate.Put(struct{}{}), gate.Record(passed)))
	e := r.event()
	r.must(r.q.Copy(part(r.mem, 0, 64), part(r.host, 0, 64)))
	r.must(r.q.Record(e))
	if err := r.q.Wait(passed); err != nil {
		r.must(fmt.Errorf("%w: %w", errSkip, err))
	}
	r.must(r.q.Copy(part(r.host, 0, 64), part(r.mem, 0, 64)))
	r.must(r.q.SyncTo(e))
	open()
	r.must(r.q.Sync())
}

func checkTimes(r *rig) {
	n := r.bytes / 4
	k, second := doubler(r, n), r.alloc(4*n)
	before, after := r.event(), r.event()
	r.must(r.q.Record(before))
	for range 10 {
		double(r, r.q, k, part(second, 0, 4*n), part(r.mem, 0, 4*n))
	}
	r.must(r.q.Record(after))
	r.must(r.q.Sync())
	if took := after.Time() - before.Time(); took <= 0 {
		r.fail("ten launches took %v by their events", took)
	}
}

// checkUnknownKernel: a call that cannot be is refused while planning, with an
// error, not a panic.
func checkUnknownKernel(d device.Device, _ Options) error {
	for _, call := range []op.Call{{}, {Kind: "convolve"}, {Kind: op.MatMul}} {
		if _, err := d.Kernel(call); err == nil {
			return fmt.Errorf("a kernel for %v with %d operands", call.Kind, len(call.In))
		}
	}
	return nil
}

// refusedOnce wants a mistake to be an error of the call or of the next Sync, but
// not of both and not of a later one. An error of the call leaves the queue as it
// was; one met later makes the queue skip what follows until Sync. SyncTo is as good.
func refusedOnce(r *rig, what string, mistake func() error) {
	reportedOnce(r, what, r.q.Sync, mistake)
	e := r.event()
	reportedOnce(r, what, func() error {
		r.must(r.q.Record(e))
		return r.q.SyncTo(e)
	}, mistake)
}

func reportedOnce(r *rig, what string, wait, mistake func() error) {
	const n = 32
	r.upload(r.mem, pattern(n, 1))
	copy(r.host.Host(), pattern(n, 2))
	atOnce := mistake()
	r.must(r.q.Copy(part(r.mem, 0, n), part(r.host, 0, n)))
	late := wait()
	want := pattern(n, 2)
	switch {
	case atOnce == nil && late == nil:
		r.fail("%s was accepted", what)
	case atOnce != nil && late != nil:
		r.fail("%s was reported twice: %v, and at Sync %v", what, atOnce, late)
	case late != nil:
		want = pattern(n, 1)
	}
	if again := r.q.Sync(); again != nil {
		r.fail("%s was reported again at the second Sync: %v", what, again)
	}
	r.same("after "+what, r.download(r.mem, n), want)
}

func checkBadCopies(r *rig) {
	for _, c := range []struct {
		what     string
		dst, src device.Buffer
	}{
		{"a copy past the end of its destination", part(r.mem, 60, 8), part(r.host, 0, 8)},
		{"a copy past the end of its source", part(r.mem, 0, 8), part(r.host, 60, 8)},
		{"a copy between unequal lengths", part(r.mem, 0, 8), part(r.host, 0, 16)},
		{"a copy from before the start", part(r.mem, 0, 8), part(r.host, -4, 8)},
		{"a copy of a negative length", part(r.mem, 8, -4), part(r.host, 8, -4)},
		{"a copy from no memory", part(r.mem, 0, 8), device.Buffer{Bytes: 8}},
	} {
		refusedOnce(r, c.what, func() error { return r.q.Copy(c.dst, c.src) })
	}
}

func checkBadLaunches(r *rig) {
	k := doubler(r, 64)
	x, y := part(r.mem, 256, 256), part(r.mem, 512, 256)
	for _, c := range []struct {
		what    string
		kernel  device.Kernel
		buffers []device.Buffer
	}{
		{"a launch without its output", k, []device.Buffer{x}},
		{"a launch with one buffer too many", k, []device.Buffer{x, y, y}},
		{"a launch on a buffer too small", k, []device.Buffer{x, part(r.mem, 512, 252)}},
		{"a launch past the end of memory", k, []device.Buffer{x, part(r.mem, 1024-128, 256)}},
		{"a launch of no kernel", nil, []device.Buffer{x, y}},
		{"a launch of another device's kernel", stranger{}, []device.Buffer{x, y}},
	} {
		l := &device.Launch{Buffers: c.buffers, Workspace: part(r.mem, 0, 0), Args: &op.Args{}}
		refusedOnce(r, c.what, func() error { return r.q.Launch(c.kernel, l) })
	}
}

// stranger is a kernel no device made.
type stranger struct{}

func (stranger) Workspace() int64 { return 0 }

func checkFailure(d device.Device, o Options) error {
	if o.Fail == nil {
		return fmt.Errorf("%w: the device cannot be made to fail", errSkip)
	}
	return try(d, 64, func(r *rig) {
		refusedOnce(r, "a failing operation", func() error { return o.Fail(d, r.q) })
	})
}
