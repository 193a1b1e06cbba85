package probe

import (
	"errors"
	"fmt"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/op"
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
}

func newBench(dev device.Device) (b *bench, err error) {
	b = &bench{dev: dev, noise: map[content]device.Memory{}}
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
	once, row, err := b.rows(call, span)
	if err != nil {
		return 0, err
	}
	best := once
	for range workTries {
		if call.Cost().Matrix {
			rest(time.Duration(launchesIn(span, once)) * once)
		}
		took, err := row()
		if err != nil {
			return 0, err
		}
		best = min(best, took)
	}
	return best, nil
}

// rows is how long a launch of a call takes by itself, and what launches it again and again
// for about span and says how long one of them took.
func (b *bench) rows(call op.Call, span time.Duration) (once time.Duration, row func() (time.Duration, error), err error) {
	k, l, err := b.prepare(call)
	if err != nil {
		return 0, nil, err
	}
	of := func(launches int) (time.Duration, error) {
		took, err := b.row(k, l, launches)
		if err != nil {
			err = fmt.Errorf("%v: %w", call, err)
		}
		return took, err
	}
	once, err = of(1)
	return once, func() (time.Duration, error) { return of(launchesIn(span, once)) }, err
}

// prepare gives a call its kernel and operands, and loads what is loaded at first use.
func (b *bench) prepare(call op.Call) (device.Kernel, *device.Launch, error) {
	k, err := b.dev.Kernel(call)
	if err != nil {
		return nil, nil, err
	}
	l, err := b.place(call, k.Workspace())
	if err == nil {
		_, err = b.row(k, l, 1)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%v: %w", call, err)
	}
	return k, l, nil
}

// launchesIn is how many launches take a span, if one takes so long.
func launchesIn(span, once time.Duration) int { return int(min(max(span/max(once, 1), 1), 1000)) }

// rest does nothing for twice as long as the work before or after took, within reason.
func rest(work time.Duration) { time.Sleep(min(2*work, 20*time.Millisecond)) }

// row is how long each of so many launches takes.
func (b *bench) row(k device.Kernel, l *device.Launch, launches int) (time.Duration, error) {
	start := time.Now()
	for range launches {
		if err := b.queue.Launch(k, l); err != nil {
			return 0, err
		}
	}
	err := b.queue.Sync()
	return time.Since(start) / time.Duration(launches), err
}

// place gives operands and outputs of a call their memory, and the operands numbers.
func (b *bench) place(call op.Call, workspace int64) (*device.Launch, error) {
	align, size := max(b.dev.Info().Alignment, 1), int64(0)
	place := func(bytes int64) device.Buffer {
		at := (size + align - 1) / align * align
		size = at + bytes
		return device.Buffer{Offset: at, Bytes: bytes}
	}
	l := &device.Launch{Args: &op.Args{}}
	for _, t := range append(call.In[:len(call.In):len(call.In)], call.Out...) {
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
	for i, t := range call.In {
		from, err := b.noiseOf(t)
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
const filled = 1 << 16

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

// content is what an operand is filled with.
type content struct {
	of     dtype.Type
	factor bool // of clipping: positive, or updates would leave everything as it is
}

// noiseOf is host memory with random numbers for an operand: between -1/2 and 1/2, or ids.
func (b *bench) noiseOf(t op.Type) (device.Memory, error) {
	c := content{t.DType, t.Equal(of(dtype.F32, 2))}
	if m := b.noise[c]; m != nil {
		return m, nil
	}
	some := op.NewArray(of(t.DType, filled))
	for i := range filled {
		u := float64(op.Uniform(1, 0, uint64(i)))
		switch {
		case t.DType == dtype.I32:
			some.I[i] = int32(u * ids)
		case c.factor:
			some.F[i] = 1
		default:
			some.F[i] = u - 0.5
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
const ids = 4096
