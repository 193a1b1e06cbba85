package rig

import (
	"errors"
	"fmt"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
	"spillway/optim"
)

// workTries is how often a row of launches is timed; the shortest time counts.
const workTries = 3

// bench times calls one after the other. It has a queue, device memory that grows with the
// calls, and random numbers on the host.
type bench struct {
	dev    device.Device
	queue  device.Queue
	memory device.Memory
	noise  map[content]device.Memory
	rest   time.Duration // most time between rows of matmuls
}

// clockRest is long enough for a GPU to raise its clock again.
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

// time is the time per launch of a call on random operands; matmuls of zeros take less
// power, and less time. It launches a row of calls that takes about span, at least one and
// at most maxLaunches, and takes the best of several rows. Between rows of matmuls the
// device rests, or a GPU would lower its clock.
func (b *bench) time(call op.Call, span time.Duration) (time.Duration, error) {
	w, err := b.prepare(call)
	if err != nil {
		return 0, err
	}
	best, launches := w.once, launchesIn(span, w.once)
	pause := time.Duration(launches) * w.once
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
	return w.captured(best)
}

// launchBoundShare is the share of a row's time spent launching above which the device is
// taken to have waited for launches.
const launchBoundShare = 0.9

// work is a call that is ready to be launched.
type work struct {
	*bench
	call   op.Call
	kernel device.Kernel
	launch *device.Launch
	once   time.Duration // what a single launch took
	issued time.Duration // what launching took in the last row, per launch
}

// prepare gives a call its kernel and operands, and runs it once to load what is loaded at
// first use, and once more to time it.
func (b *bench) prepare(call op.Call) (*work, error) {
	k, err := b.dev.Kernel(call)
	if err != nil {
		return nil, err
	}
	w := &work{bench: b, call: call, kernel: k}
	if w.launch, err = b.place(call, k.Workspace()); err != nil {
		return nil, fmt.Errorf("%v: %w", call, err)
	}
	if _, err = w.row(1); err == nil {
		w.once, err = w.row(1)
	}
	return w, err
}

// launchesIn is how many launches take span, where one takes once.
func launchesIn(span, once time.Duration) int {
	return int(min(max(span/max(once, 1), 1), maxLaunches))
}

// maxLaunches is the most launches of a row.
const maxLaunches = 1000

// row is the time per launch of so many launches in a row.
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

// issue gives so many launches to the queue.
func (w *work) issue(launches int) error {
	for range launches {
		if err := w.queue.Launch(w.kernel, w.launch); err != nil {
			return err
		}
	}
	return nil
}

// A graph of so many launches is captured and launched so often.
const (
	capturedLaunches = 512
	graphLaunches    = 3
)

// captured is the time per launch in a captured graph, without launch overhead. Where the
// device captures no graphs it is took.
func (w *work) captured(took time.Duration) (best time.Duration, err error) {
	d, can := w.dev.(device.GraphCapturer)
	if !can {
		return took, nil
	}
	graph, err := d.Capture([]device.Queue{w.queue}, func() error { return w.issue(capturedLaunches) })
	if errors.Is(err, device.ErrNotCapturable) {
		return took, nil
	}
	if err != nil {
		return 0, fmt.Errorf("capturing %v: %w", w.call, err)
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	best = took
	for range graphLaunches {
		start := time.Now()
		if err := errors.Join(graph.Launch(), w.queue.Sync()); err != nil {
			return 0, fmt.Errorf("launching a graph of %v: %w", w.call, err)
		}
		best = min(best, time.Since(start)/capturedLaunches)
	}
	return best, nil
}

// place gives operands and outputs of a call their memory, as in a training run, and fills
// the operands.
func (b *bench) place(call op.Call, workspace int64) (*device.Launch, error) {
	l, size := device.Arrange(call, workspace, b.dev.Info().Alignment)
	l.Args = &op.Args{Scalars: typicalArgs}
	if b.memory == nil || b.memory.Size() < size {
		if b.memory != nil {
			if err := b.memory.Free(); err != nil {
				return nil, err
			}
		}
		var err error
		if b.memory, err = b.dev.Alloc(size); err != nil {
			return nil, err
		}
	}
	l.Place(b.memory)
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

// largeSpan is how long the launches of a large call take together.
const largeSpan = 10 * time.Millisecond

// Time is how long a call on random operands takes.
func Time(dev device.Device, call op.Call) (took time.Duration, err error) {
	b, err := newBench(dev)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return b.time(call, largeSpan)
}

// noiseElements is how many different random numbers an operand has; they repeat.
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

// typicalArgs are the numbers of an update in the middle of a training run.
var typicalArgs = optim.AdamStep{Rate: 1e-6, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Bias1: 1, Bias2: 1}.Scalars()

// content is what an operand is filled with: numbers of a type.
type content struct {
	of   dtype.Type
	from float64 // the smallest; the largest is one more
}

// contentOf chooses what to fill an operand with. The factor of clipping must be positive,
// or updates would change nothing, and so must means of squares, whose root is taken.
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

// squares is the index of the means of squares among the operands of Adam.
const squares = 3

// noiseOf is host memory with random numbers, or random ids, for an operand.
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

// vocabulary is how many different token ids and positions there are: fewer than in any
// real vocabulary.
const vocabulary = 4096
