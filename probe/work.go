package probe

import (
	"errors"
	"time"

	"spillway/device"
	"spillway/op"
)

// workTries is how often a row of launches is timed; the best counts.
const workTries = 4

// work is one call on a device, ready to be timed.
type work struct {
	kernel device.Kernel
	launch device.Launch
	memory device.Memory
	queue  device.Queue
}

// newWork prepares a call on operands of random numbers.
func newWork(dev device.Device, kind op.Kind, attr op.Attr, in ...op.Type) (w *work, err error) {
	call, err := op.Make(kind, attr, in...)
	if err != nil {
		return nil, err
	}
	w = &work{}
	if w.kernel, err = dev.Kernel(call); err != nil {
		return nil, err
	}
	align, size := max(dev.Info().Alignment, 1), int64(0)
	place := func(bytes int64) device.Buffer {
		at := (size + align - 1) / align * align
		size = at + bytes
		return device.Buffer{Offset: at, Bytes: bytes}
	}
	for _, t := range append(in[:len(in):len(in)], call.Out...) {
		w.launch.Buffers = append(w.launch.Buffers, place(t.Bytes()))
	}
	w.launch.Workspace = place(w.kernel.Workspace())
	if w.memory, err = dev.Alloc(size); err != nil {
		return nil, err
	}
	for i := range w.launch.Buffers {
		w.launch.Buffers[i].Memory = w.memory
	}
	w.launch.Workspace.Memory = w.memory
	if w.queue, err = dev.Queue("compute"); err != nil {
		return nil, errors.Join(err, w.memory.Free())
	}
	for i, t := range in {
		if err := w.fill(dev, t, w.launch.Buffers[i]); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

// filled is how many different random numbers an operand has; they repeat.
const filled = 1 << 16

// fill writes random numbers: products of zeros take less power, and less time.
func (w *work) fill(dev device.Device, t op.Type, to device.Buffer) (err error) {
	host, err := dev.HostAlloc(to.Bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Free()) }()
	some := op.NewArray(op.Type{DType: t.DType, Shape: []int64{min(filled, t.Shape.Elements())}})
	for i := range some.F {
		some.F[i] = float64(op.Uniform(1, 0, uint64(i))) - 0.5
	}
	raw, err := some.Encode()
	if err != nil {
		return err
	}
	for at := 0; at < len(host.Host()); {
		at += copy(host.Host()[at:], raw)
	}
	return errors.Join(w.queue.Copy(to, device.Buffer{Memory: host, Bytes: to.Bytes}), w.queue.Sync())
}

// best is the shortest time of one of so many launches in a row.
func (w *work) best(launches int) (best time.Duration, err error) {
	for i := range workTries + 1 {
		start := time.Now()
		for range launches {
			if err := w.queue.Launch(w.kernel, &w.launch); err != nil {
				return 0, err
			}
		}
		if err := w.queue.Sync(); err != nil {
			return 0, err
		}
		if took := time.Since(start) / time.Duration(launches); i == 1 || i > 1 && took < best {
			best = took
		}
	}
	return best, nil
}

func (w *work) close() error { return errors.Join(w.queue.Close(), w.memory.Free()) }
