package probe

import (
	"errors"
	"fmt"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
)

// workTries is how often a row of launches is timed; the best counts.
const workTries = 3

// bench is where calls are timed, one after the other: a queue, memory of the device
// that grows with them, and random numbers on the host.
type bench struct {
	dev    device.Device
	queue  device.Queue
	memory device.Memory
	noise  map[content]device.Memory
	rest   time.Duration // before rows of products, at most
}

// usualRest lets a card raise its clock again.
const clockRest = 20 * time.Millisecond

func newBench(dev device.Device) (b *bench, err error) {
	b = &bench{dev: dev, noise: map[content]device.Memory{}, rest: clockRest}
	b.queue, err = dev.Queue("compute")
	return b, err
}

func (b *bench) close() error {
	errs := []error{b.queue.Close()}
	if b.memory != nil {
		errs = append(errs, b.memory.Free())
	}
	for _, m := range b.noise {
		errs = append(errs, m.Free())
	}
	return errors.Join(errs...)
}

// time is how long one of several launches of a call in a row takes, on random
// operands: products of zeros take less power, and less time. So many launches are made
// that they take span, at least one and at most a thousand. Between rows of products the
// device rests, or a card would have lowered its clock.
func (b *bench) time(call op.Call, span time.Duration) (time.Duration, error) {
	w, err := b.prepare(call)
	if err != nil {
		return 0, err
	}
	once, err := w.row(1)
	if err != nil {
		return 0, err
	}
	best, launches := once, launchesIn(span, once)
	pause := time.Duration(launches) * once
	for range workTries {
		if call.Cost().Matrix {
			time.Sleep(min(2*pause, b.rest))
		}
		took, err := w.row(launches)
		if err != nil {
			return 0, err
		}
		best = min(best, took)
	}
	if float64(w.issued) < launchBoundShare*float64(best) {
		return best, nil
	}
	return w.withoutLaunches(best)
}

// waited is the share of a row's time in which it is handed over from which on the device
// is taken to have waited for that.
const launchBoundShare = 0.9

// work is a call that is ready to be launched.
type work struct {
	*bench
	call   op.Call
	kernel device.Kernel
	launch *device.Launch
	issued time.Duration // what handing over a launch of the last row took
}

// prepare gives a call its kernel and operands, and loads what is loaded at first use.
func (b *bench) prepare(call op.Call) (*work, error) {
	k, err := b.dev.Kernel(call)
	if err != nil {
		return nil, err
	}
	w := &work{bench: b, call: call, kernel: k}
	if w.launch, err = b.place(call, k.Workspace()); err != nil {
		return nil, fmt.Errorf("%v: %w", call, err)
	}
	_, err = w.row(1)
	return w, err
}

// launchesIn is how many launches take a span, if one takes so long.
func launchesIn(span, once time.Duration) int {
	return int(min(max(span/max(once, 1), 1), maxLaunches))
}

// mostLaunches is how many are made in a row.
const maxLaunches = 1000

// row is how long each of so many launches takes.
func (w *work) row(launches int) (time.Duration, error) {
	start := time.Now()
	err := w.issue(launches)
	w.issued = time.Since(start) / time.Duration(launches)
	if err == nil {
		err = w.queue.Sync()
	}
	if err != nil {
		return 0, fmt.Errorf("%v: %w", w.call, err)
	}
	return time.Since(start) / time.Duration(launches), nil
}

// hand gives so many launches to the queue.
func (w *work) issue(launches int) error {
	for range launches {
		if err := w.queue.Launch(w.kernel, w.launch); err != nil {
			return err
		}
	}
	return nil
}

// Launches that waited to be handed over are noted and done again, so many at once.
const (
	capturedLaunches = 512
	graphLaunches    = 3
)

// unhanded is how long a launch takes that need not be handed over, where the device can
// repeat; as long as took elsewhere.
func (w *work) withoutLaunches(took time.Duration) (best time.Duration, err error) {
	d, can := w.dev.(device.GraphCapturer)
	if !can {
		return took, nil
	}
	run, err := d.Capture([]device.Queue{w.queue}, func() error { return w.issue(capturedLaunches) })
	if errors.Is(err, device.ErrNotCapturable) {
		return took, nil
	}
	if err != nil {
		return 0, fmt.Errorf("noting %v: %w", w.call, err)
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	best = took
	for range graphLaunches {
		start := time.Now()
		if err := errors.Join(run.Launch(), w.queue.Sync()); err != nil {
			return 0, fmt.Errorf("repeating %v: %w", w.call, err)
		}
		best = min(best, time.Since(start)/capturedLaunches)
	}
	return best, nil
}

// place gives operands and outputs of a call their memory, as trainings do, and the operands
// numbers.
func (b *bench) place(call op.Call, workspace int64) (*device.Launch, error) {
	align, size := max(b.dev.Info().Alignment, 1), int64(0)
	place := func(bytes int64) device.Buffer {
		at := (size + align - 1) / align * align
		size = at + bytes
		return device.Buffer{Offset: at, Bytes: bytes}
	}
	l := &device.Launch{Args: &op.Args{Scalars: typicalArgs}}
	for _, t := range call.In {
		l.Buffers = append(l.Buffers, place(t.Bytes()))
	}
	for i, t := range call.Out {
		if same := call.InPlace(); i < len(same) {
			l.Buffers = append(l.Buffers, l.Buffers[same[i]])
			continue
		}
		l.Buffers = append(l.Buffers, place(t.Bytes()))
	}
	l.Workspace = place(workspace)
	if err := b.grow(size); err != nil {
		return nil, err
	}
	for i := range l.Buffers {
		l.Buffers[i].Memory = b.memory
	}
	l.Workspace.Memory = b.memory
	for i := range call.In {
		from, err := b.noiseOf(contentOf(call, i))
		if err != nil {
			return nil, err
		}
		if err := b.fill(from, l.Buffers[i]); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// grow makes the memory at least so large; what it held is lost.
func (b *bench) grow(size int64) (err error) {
	if b.memory != nil && b.memory.Size() >= size {
		return nil
	}
	if b.memory != nil {
		if err := b.memory.Free(); err != nil {
			return err
		}
		b.memory = nil
	}
	b.memory, err = b.dev.Alloc(size)
	return err
}

// filled is how many different random numbers an operand has; they repeat.
const noiseElements = 1 << 16

// fill writes random numbers: the first from the host, the rest as copies of them.
func (b *bench) fill(from device.Memory, to device.Buffer) error {
	part := func(at, bytes int64) device.Buffer {
		return device.Buffer{Memory: to.Memory, Offset: to.Offset + at, Bytes: bytes}
	}
	done := min(to.Bytes, from.Size())
	err := b.queue.Copy(part(0, done), device.Buffer{Memory: from, Bytes: done})
	for err == nil && done < to.Bytes {
		more := min(done, to.Bytes-done)
		err = b.queue.Copy(part(done, more), part(0, more))
		done += more
	}
	return errors.Join(err, b.queue.Sync())
}

// usualStep are the numbers of an update in the middle of a training.
var typicalArgs = optim.AdamStep{Rate: 1e-6, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Bias1: 1, Bias2: 1}.Scalars()

// content is what an operand is filled with: numbers of a type.
type content struct {
	of   dtype.Type
	from float64 // the least; the largest is one more
}

// Positive are the factor of clipping, or updates would leave everything as it is, and
// means of squares, which have a root.
func contentOf(call op.Call, i int) content {
	t := call.In[i]
	switch {
	case t.DType == dtype.I32:
		return content{t.DType, 0}
	case t.Equal(of(dtype.F32, 2)), call.Kind == optim.Adam && i == squares:
		return content{t.DType, 0.5}
	}
	return content{t.DType, -0.5}
}

// squares is which operand of Adam the means of squares are.
const squares = 3

// noiseOf is host memory with random numbers for an operand, or ids.
func (b *bench) noiseOf(c content) (device.Memory, error) {
	if m := b.noise[c]; m != nil {
		return m, nil
	}
	some := op.NewArray(of(c.of, noiseElements))
	for i := range noiseElements {
		u := float64(op.Uniform(1, 0, uint64(i)))
		if c.of == dtype.I32 {
			some.I[i] = int32(u * vocabulary)
		} else {
			some.F[i] = c.from + u
		}
	}
	raw, err := some.Encode()
	if err != nil {
		return nil, err
	}
	m, err := b.dev.HostAlloc(int64(len(raw)))
	if err != nil {
		return nil, err
	}
	b.noise[c] = m
	copy(m.Host(), raw)
	return m, nil
}

// ids is how many different tokens and positions there are: all vocabularies are larger.
const vocabulary = 4096
