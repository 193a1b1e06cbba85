package rig

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/stopwatch"
	"spillway/machine"
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
	room   int64         // most bytes of device memory; 0 is no limit
	stop   func() error  // asked between calls of tables; nil goes on
	// cold is how many bytes no cache holds: weights and states are read from as many, as in a run
	// that has used others since; 0 reads the same again and again.
	cold int64
	// whole says that not only weights and states but all buffers of a call lie elsewhere each time.
	whole bool
	// typical takes the middle of several rows of launches in place of the shortest: what a run takes that
	// has the same neighbours.
	typical bool
	// long is what a call takes at least that is not repeated; 0 repeats all.
	long time.Duration
	// patience is how many more rows are launched at most, one for each in which other programs took
	// the cores of this one.
	patience int
	marks    [2]device.Event // of what a device takes by its own clock; nil until they are needed
}

// clockRest is long enough for a GPU to raise its clock again.
const clockRest = 20 * time.Millisecond

func newBench(dev device.Device) (b *bench, err error) {
	b = &bench{dev: dev, noise: map[content]device.Memory{}, rest: clockRest}
	b.queue, err = dev.Queue("compute")
	return b, err
}

func (b *bench) close() error {
	errs := []error{b.queue.Close(), b.free()}
	for _, m := range b.noise {
		errs = append(errs, m.Free())
	}
	return errors.Join(errs...)
}

// free gives the device memory back.
func (b *bench) free() error {
	if b.memory == nil {
		return nil
	}
	m := b.memory
	b.memory = nil
	return m.Free()
}

// alloc takes device memory.
func (b *bench) alloc(bytes int64) (err error) {
	alloc := b.dev.Alloc
	if b.dev.Info().OnHost { // the same memory, which does not count as a run's
		alloc = b.dev.HostAlloc
	}
	b.memory, err = alloc(bytes)
	return err
}

// time is the time per launch of a call on random operands; matmuls of zeros take less
// power, and less time. It launches a row of calls that takes about span, at least one and
// at most maxLaunches, and takes the best of several rows. Between rows of matmuls the
// device rests, or a GPU would lower its clock.
func (b *bench) time(call op.Call, span time.Duration) (time.Duration, error) {
	t, err := b.callTime(call, span)
	return t.Device, err
}

// callTime is the same, with what launching takes.
func (b *bench) callTime(call op.Call, span time.Duration) (t machine.CallTime, err error) {
	w, err := b.prepare(call)
	if err != nil {
		return t, err
	}
	return w.time(span)
}

// time is that of the work among its own kind.
func (w *work) time(span time.Duration) (t machine.CallTime, err error) {
	launches := launchesIn(span, w.once)
	pause := time.Duration(launches) * w.once
	t = machine.CallTime{Device: w.once, Launch: w.issued}
	if w.long > 0 && w.once > w.long {
		t.Device, err = agreed([]time.Duration{w.first, w.once}, func() (time.Duration, error) { return w.row(1) })
		return t, err
	}
	wanted, rows := workTries, []time.Duration{}
	if w.typical {
		wanted = typicalTries
	}
	for tries, disturbed := 0, 0; tries < wanted+disturbed; tries++ {
		if w.call.Cost().Matrix {
			time.Sleep(min(2*pause, w.rest))
		}
		before := preempted()
		took, err := w.row(launches)
		if err != nil {
			return t, err
		}
		if preempted() != before && disturbed < w.patience {
			disturbed++
		} else {
			rows = append(rows, took)
		}
		t.Device, t.Launch = min(t.Device, took), min(t.Launch, w.issued)
	}
	if w.typical {
		t.Device = middle(rows)
	}
	if float64(t.Launch) < launchBoundShare*float64(t.Device) {
		return t, nil
	}
	t.Device, err = w.captured(t.Device, min(max(int(span/max(t.Device, 1)), leastCaptured), capturedLaunches))
	return t, err
}

// agreed is the shortest time of a long call, which two of its runs agree on. It runs again where other programs took the cores
// during one, or where one was the first to touch its memory; there is no time for many.
func agreed(list []time.Duration, again func() (time.Duration, error)) (time.Duration, error) {
	for {
		slices.Sort(list)
		if float64(list[1]) <= agreement*float64(list[0]) || len(list) == mostAgreeing {
			return list[0], nil
		}
		took, err := again()
		if err != nil {
			return 0, err
		}
		list = append(list, took)
	}
}

// Two times agree where one is at most so many times the other; so many runs are made at most until two do.
const (
	agreement    = 1.05
	mostAgreeing = 4
)

// typicalTries is how many rows of launches those are that the middle is taken of.
const typicalTries = 5

// middle of some times.
func middle(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

// launchBoundShare is the share of a row's time spent launching above which the device may
// have waited for launches: at the beginning of the row, or throughout.
const launchBoundShare = 0.05

// work is a call that is ready to be launched.
type work struct {
	*bench
	call     op.Call
	kernel   device.Kernel
	launches []*device.Launch // in turns: with weights elsewhere
	next     int              // of them
	first    time.Duration    // what the first launch took
	once     time.Duration    // what the second launch took
	issued   time.Duration    // what launching took in the last row, per launch
}

// prepare gives a call its kernel and operands, and runs it once to load what is loaded at
// first use, and once more to time it.
func (b *bench) prepare(call op.Call) (*work, error) {
	k, err := b.dev.Kernel(call)
	if err != nil {
		return nil, err
	}
	w := &work{bench: b, call: call, kernel: k}
	if w.launches, err = b.place(call, k.Workspace()); err != nil {
		return nil, fmt.Errorf("%v: %w", call, err)
	}
	if w.first, err = w.row(1); err == nil {
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
	start := stopwatch.Now()
	err := w.issue(launches)
	w.issued = stopwatch.Since(start) / time.Duration(launches)
	if err == nil {
		err = w.queue.Sync()
	}
	if err != nil {
		return 0, fmt.Errorf("%v: %w", w.call, err)
	}
	return stopwatch.Since(start) / time.Duration(launches), nil
}

// issue gives so many launches to the queue.
func (w *work) issue(launches int) error {
	for range launches {
		if err := w.queue.Launch(w.kernel, w.launches[w.next]); err != nil {
			return err
		}
		w.next = (w.next + 1) % len(w.launches) // rows go on where the last ended: what that has read is in a cache
	}
	return nil
}

// A graph of at least and at most so many launches is captured, and launched so often.
const (
	leastCaptured    = 4
	capturedLaunches = 512
	graphLaunches    = 3
)

// captured is the time per launch in a captured graph of so many, without launch overhead.
// Where the device captures no graphs it is took.
func (w *work) captured(took time.Duration, launches int) (best time.Duration, err error) {
	d, can := w.dev.(device.GraphCapturer)
	if !can {
		return took, nil
	}
	graph, err := d.Capture([]device.Queue{w.queue}, func() error { return w.issue(launches) })
	if errors.Is(err, device.ErrNotCapturable) {
		return took, nil
	}
	if err != nil {
		return 0, fmt.Errorf("capturing %v: %w", w.call, err)
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	best = took
	for range graphLaunches {
		start := stopwatch.Now()
		if err := errors.Join(graph.Launch(), w.queue.Sync()); err != nil {
			return 0, fmt.Errorf("launching a graph of %v: %w", w.call, err)
		}
		best = min(best, stopwatch.Since(start)/time.Duration(launches))
	}
	return best, nil
}

// place gives operands and outputs of a call their memory, as in a training run, and fills
// the operands. Weights and states lie in several places, where they would be in a cache else.
func (b *bench) place(call op.Call, workspace int64) ([]*device.Launch, error) {
	l, size := device.Arrange(call, workspace, b.dev.Info().Alignment)
	l.Args = &op.Args{Scalars: typicalArgs}
	if b.room > 0 && size > b.room {
		return nil, &device.OutOfMemoryError{Device: b.dev.Info().Name, Asked: size, Limit: b.room}
	}
	elsewhere, size := b.elsewhere(call, l, size)
	if b.memory == nil || b.memory.Size() < size {
		err := b.free()
		if err == nil {
			err = b.alloc(size)
		}
		if err != nil {
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
	for _, other := range elsewhere {
		other.Place(b.memory)
		for _, i := range b.coldBuffers(call) {
			if i >= len(call.In) {
				continue
			}
			if err := b.queue.Copy(other.Buffers[i], l.Buffers[i]); err != nil {
				return nil, err
			}
		}
	}
	return append([]*device.Launch{l}, elsewhere...), b.queue.Sync()
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

// noiseRows is how many rows those of a block format are in.
const noiseRows = 64

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

// typicalGradient is the standard deviation of gradients.
const typicalGradient = 1e-2

// content is what an operand is filled with: numbers of a type.
type content struct {
	of   dtype.Type
	from float64 // the smallest; the largest is one more
	// Normal numbers are distributed as gradients are, and squares are theirs: 8-bit codes of such numbers are mostly
	// those of small ones.
	normal, squares bool
	// Of i32: ids below a count; or, where positions are not 0, sequences of so many positions
	// in documents of so many on average.
	ids, positions, document int64
	step                     step // of a call on a cache
}

// step is which integers of a call on a cache an operand has, with the sizes they follow from.
type step struct {
	what                         stepPart
	rows, filled                 int64 // rows of the call; positions of a sequence
	sequences, table, pages, all int64 // the table of pages, pages of the cache, and integers in all
}

type stepPart uint8

const (
	stepPositions stepPart = 1 + iota
	stepSequences
	stepPages
)

// cacheStep finds an operand of integers of a call on a cache: positions, sequences and the table of pages.
func cacheStep(call op.Call, i int) (s step, ok bool) {
	first := firstI32(call)
	cache := slices.IndexFunc(call.In, func(t op.Type) bool { return len(t.Shape) == 4 })
	if !call.Kind.ReadsCache() && call.Kind != op.NormHeads || i < first || i > first+2 || cache < 0 {
		return s, false
	}
	table := call.In[first+2].Shape
	s = step{what: stepPart(1 + i - first), rows: call.In[first].Shape.Last(), filled: table[1] * call.In[cache].Shape[2], sequences: table[0], table: table[1], pages: call.In[cache].Shape[0], all: call.In[i].Shape.Elements()}
	if call.Attr.Document > 0 {
		s.filled = call.Attr.Document
	}
	return s, true
}

// number is the n-th integer: a row of each sequence, or where there are more rows than sequences the latest positions of the
// first, or of as many as it takes.
func (s step) number(n int64) int32 {
	if s.what == stepPages {
		return int32(n % s.pages)
	}
	sequence, position := n, s.filled-1
	switch {
	case s.rows > s.sequences && s.rows <= s.filled:
		sequence, position = 0, s.filled-s.rows+n
	case s.rows > s.sequences:
		sequence, position = n/s.filled, n%s.filled
	}
	if s.what == stepPositions {
		return int32(position)
	}
	return int32(sequence) // those behind the last are of idle rows
}

// contentOf chooses what to fill an operand with. The factor of clipping must be positive,
// or updates would change nothing, and so must means of squares, whose root is taken.
func contentOf(call op.Call, i int) content {
	t := call.In[i]
	if t.DType == dtype.I32 {
		if s, ok := cacheStep(call, i); ok {
			return content{of: t.DType, step: s}
		}
	}
	switch {
	case call.Kind == optim.Adam && i > 0 && i <= squares && slices.ContainsFunc(call.In, func(t op.Type) bool { return t.DType.Block() }):
		return content{of: t.DType, normal: true, squares: i == squares}
	case t.DType == dtype.I32 && call.Attr.Segments && firstI32(call) == i:
		n := t.Shape.Last()
		return content{of: t.DType, positions: n, document: cmp.Or(call.Attr.Document, n)}
	case t.DType == dtype.I32:
		c := content{of: t.DType, ids: vocabulary}
		if ids, known := call.IDs(); known && ids.Operand == i {
			c.ids = ids.Count
		} else if call.Attr.Rows > 0 { // of the table whose gradient is made
			c.ids = call.Attr.Rows
		}
		return c
	case t.Equal(of(dtype.F32, 2)), call.Kind == optim.Adam && i == squares:
		return content{of: t.DType, from: 0.5}
	}
	return content{of: t.DType, from: -0.5}
}

// firstI32 is the index of the first operand of integers: of attention, the segments.
func firstI32(call op.Call) int {
	return slices.IndexFunc(call.In, func(t op.Type) bool { return t.DType == dtype.I32 })
}

// squares is the index of the means of squares among the operands of Adam.
const squares = 3

// noiseOf is host memory with random numbers, or random ids, for an operand.
func (b *bench) noiseOf(c content) (device.Memory, error) {
	if m := b.noise[c]; m != nil {
		return m, nil
	}
	var segments []int32
	if c.positions > 0 && c.document < c.positions {
		segments = documents(c.positions, c.document)
	}
	kind := of(c.of, cmp.Or(int64(len(segments)), c.positions, c.step.all, noiseElements))
	if c.of.Block() { // of some formats several rows lie together
		kind = of(c.of, noiseRows, noiseElements/noiseRows)
	}
	some := op.NewArray(kind)
	for i := range some.Type.Shape.Elements() {
		switch u := float64(op.Uniform(1, 0, uint64(i))); {
		case c.positions > 0 && segments == nil:
			some.I[i] = 0 // one document
		case c.positions > 0:
			some.I[i] = segments[i]
		case c.step.all > 0:
			some.I[i] = c.step.number(i)
		case c.of == dtype.I32:
			some.I[i] = int32(u * float64(c.ids))
		case c.normal:
			some.F[i] = typicalGradient * math.Sqrt(-2*math.Log1p(-u)) * math.Cos(2*math.Pi*float64(op.Uniform(1, 1, uint64(i))))
			if c.squares {
				some.F[i] *= some.F[i]
			}
		default:
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
