package devicetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
)

const limit = 32 << 20

var allTypes = Options{DTypes: []dtype.Type{dtype.F32, dtype.BF16, dtype.F16}, Complete: true}

func TestPlainDevicePasses(t *testing.T) {
	Run(t, func(*testing.T) device.Device { return NewPlain(limit) }, allTypes)
}

func TestDelayedDevicePasses(t *testing.T) {
	o := Options{Fail: func(_ device.Device, q device.Queue) error {
		return q.Copy(device.Buffer{}, device.Buffer{Bytes: 1})
	}}
	for _, c := range slices.Concat(memoryChecks, queueChecks) {
		if err := c.on(&delayed{Device: NewPlain(limit)}, o); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A device that breaks one promise fails the check of that promise.
func TestBrokenDevicesAreRejected(t *testing.T) {
	for _, c := range []struct {
		check string
		d     device.Device
	}{
		{"info", &twisted{Device: NewPlain(limit), info: func(i *device.Info) { i.Alignment = 24 }}},
		{"copies of all sizes and offsets", &twisted{Device: NewPlain(limit), copied: loseTail}},
		{"copies within the device", &twisted{Device: NewPlain(limit), copied: loseTail}},
		{"large copy", &twisted{Device: NewPlain(limit), copied: loseTail}},
		{"out of memory", &twisted{Device: NewPlain(0), info: func(i *device.Info) { i.Limit = limit }}},
		{"out of memory", &twisted{Device: NewPlain(limit), info: func(i *device.Info) { i.Limit-- }}},
		{"out of memory", &twisted{Device: NewPlain(limit), info: func(i *device.Info) { i.Name = "other" }}},
		{"the whole limit can be had", &twisted{Device: NewPlain(limit / 2), info: func(i *device.Info) { i.Limit = limit }}},
		{"sizes that cannot be", &twisted{Device: NewPlain(limit), anySize: true}},
		{"freed twice", &twisted{Device: NewPlain(limit), recount: true}},
		{"leak of device memory", &twisted{Device: NewPlain(limit), closed: func(error) error { return nil }}},
		{"leak of host memory", &twisted{Device: NewPlain(limit), closed: func(error) error { return errors.New("other") }}},
		{"a queue keeps its order", &delayed{Device: NewPlain(limit), faults: faults{overtake: true}}},
		{"events order queues", &delayed{Device: NewPlain(limit), faults: faults{ignoreWait: true}}},
		{"wait means the latest record at that time", &delayed{Device: NewPlain(limit), faults: faults{waitForLast: true}}},
		{"the host waits for an event", &delayed{Device: NewPlain(limit), faults: faults{syncToNothing: true}}},
		{"what is behind an event holds nobody", &delayed{Device: NewPlain(limit), faults: faults{syncToAll: true}}},
		{"event times", &twisted{Device: NewPlain(limit), stopped: true}},
		{"unknown kernels", &twisted{Device: NewPlain(limit), anyKernel: true}},
		{"bad copies", &delayed{Device: NewPlain(limit), faults: faults{forgetErrors: true}}},
		{"bad copies", &delayed{Device: NewPlain(limit), faults: faults{repeatErrors: true}}},
		{"bad copies", &delayed{Device: NewPlain(limit), faults: faults{runAfterErrors: true}}},
		{"bad launches", &delayed{Device: NewPlain(limit), faults: faults{forgetErrors: true}}},
	} {
		i := slices.IndexFunc(slices.Concat(memoryChecks, queueChecks), func(k check) bool { return k.name == c.check })
		if i < 0 {
			t.Fatalf("no check %q", c.check)
		}
		o := Options{patience: 2 * time.Second}
		if err := slices.Concat(memoryChecks, queueChecks)[i].on(c.d, o); err == nil || errors.Is(err, errSkip) {
			t.Errorf("%q passes (%v) for a device made to fail it", c.check, err)
		}
	}
}

// Kernels with one mistake each are distinguished from right ones.
func TestBrokenKernelsAreRejected(t *testing.T) {
	cases := op.Cases(dtype.F32)
	c := cases[slices.IndexFunc(cases, func(c op.Case) bool { return c.Name == "matmul/linear bias" })]
	launches := 0
	for _, k := range []struct {
		mistake, want string
		after         func(l *device.Launch)
	}{
		{"a wrong number", "from the reference", func(l *device.Launch) { last(l)[1] ^= 0x40 }},
		{"an element not written", "from the reference", func(l *device.Launch) { copy(last(l)[4:8], []byte{0, 0, 0xc0, 0x7f}) }},
		{"an operand changed", "outside its outputs", func(l *device.Launch) { l.Buffers[0].Host()[0]++ }},
		{"a byte past the end", "outside its outputs", func(l *device.Launch) {
			b := l.Buffers[len(l.Buffers)-1]
			b.Bytes++
			b.Host()[b.Bytes-1]++
		}},
		{"another result each time", "differs between two launches", func(l *device.Launch) {
			launches++
			last(l)[0] ^= byte(launches & 1)
		}},
	} {
		d := &twisted{Device: NewPlain(limit), launched: k.after}
		if err := tryCase(d, c, Bound); err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("a kernel with %s: error %v, want %q in it", k.mistake, err, k.want)
		}
	}
	if err := tryCase(NewPlain(limit), c, Bound); err != nil {
		t.Error(err)
	}
}

// last is the output of a launch as bytes.
func last(l *device.Launch) []byte { return l.Buffers[len(l.Buffers)-1].Host() }

func loseTail(dst, src *device.Buffer) {
	if dst.Bytes == src.Bytes && dst.Bytes%4 != 0 {
		dst.Bytes--
		src.Bytes--
	}
}

// twisted changes one thing about a device.
type twisted struct {
	device.Device
	info      func(*device.Info)
	copied    func(dst, src *device.Buffer) // before a copy
	launched  func(*device.Launch)          // after a launch
	closed    func(error) error
	anySize   bool // negative sizes are fine
	anyKernel bool // every call has a kernel
	recount   bool // memory freed twice is counted twice
	stopped   bool // the clock does not run
}

func (d *twisted) Info() device.Info {
	i := d.Device.Info()
	if d.info != nil {
		d.info(&i)
	}
	return i
}

func (d *twisted) Alloc(n int64) (device.Memory, error) {
	if d.anySize {
		n = max(n, 0)
	}
	m, err := d.Device.Alloc(n)
	if d.recount && err == nil {
		return &recounted{m.(*plainMemory)}, nil
	}
	return m, err
}

type recounted struct{ *plainMemory }

func (m *recounted) Free() error {
	m.counter = &m.device.allocated
	return m.plainMemory.Free()
}

func (d *twisted) Kernel(c op.Call) (device.Kernel, error) {
	if d.anyKernel {
		return stranger{}, nil
	}
	return d.Device.Kernel(c)
}

func (d *twisted) Event() (device.Event, error) {
	e, err := d.Device.Event()
	if d.stopped {
		return &stoppedEvent{}, err
	}
	return e, err
}

type stoppedEvent struct{ plainEvent }

func (d *twisted) Close() error {
	err := d.Device.Close()
	if d.closed != nil {
		return d.closed(err)
	}
	return err
}

func (d *twisted) Queue(name string) (device.Queue, error) {
	q, err := d.Device.Queue(name)
	return &twistedQueue{q, d}, err
}

type twistedQueue struct {
	device.Queue
	d *twisted
}

func (q *twistedQueue) Copy(dst, src device.Buffer) error {
	if q.d.copied != nil {
		q.d.copied(&dst, &src)
	}
	return q.Queue.Copy(dst, src)
}

func (q *twistedQueue) Launch(k device.Kernel, l *device.Launch) error {
	err := q.Queue.Launch(k, l)
	if q.d.launched != nil && err == nil {
		q.d.launched(l)
	}
	return err
}

func (q *twistedQueue) Record(e device.Event) error {
	if q.d.stopped {
		return nil
	}
	return q.Queue.Record(e)
}
