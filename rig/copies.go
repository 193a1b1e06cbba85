package rig

import (
	"errors"
	"time"

	"spillway/device"
	"spillway/internal/stopwatch"
	"spillway/machine"
	"spillway/units"
)

// copyTries is how often a copy is timed; the shortest time counts.
const copyTries = 4

// measureCopies times copies in, out, in both directions at once and within the device.
func measureCopies(d *machine.Device, dev device.Device, s calibrationSizes) (err error) {
	bytes := int64(s.Copy)
	c, err := newCopies(dev, bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	in := func(half int) error { return c.in.Copy(c.part(c.device, half), c.part(c.host, half)) }
	out := func(half int) error { return c.out.Copy(c.part(c.host, half), c.part(c.device, half)) }
	var both units.Rate
	for _, m := range []struct {
		rate  *units.Rate
		bytes int64
		copy  func() error
	}{
		{&d.Link.In, bytes, func() error { return in(0) }},
		{&d.Link.Out, bytes, func() error { return out(1) }},
		{&both, 2 * bytes, func() error { return errors.Join(in(0), out(1)) }},
		{&d.Bandwidth, 2 * bytes, func() error { return c.in.Copy(c.part(c.device, 1), c.part(c.device, 0)) }}, // read and written
	} {
		best, err := c.time(m.copy)
		if err != nil {
			return err
		}
		*m.rate = units.Rate(float64(m.bytes) / best.Seconds())
	}
	// Noise must not take the share out of the range that links have.
	share := machine.Bidirectional(both / (d.Link.In + d.Link.Out))
	d.Link.Bidirectional = min(max(share, machine.HalfDuplex), machine.FullDuplex)
	const times = 200 // of small copies, one of which takes the latency
	to, from := c.part(c.device, 0), c.part(c.host, 0)
	to.Bytes, from.Bytes = 256, 256
	best, err := c.time(func() (err error) {
		for i := 0; i < times && err == nil; i++ {
			err = c.in.Copy(to, from)
		}
		return err
	})
	d.Link.Latency = best / times
	return err
}

// copies has memory on host and device, two halves each, and a queue for each direction.
type copies struct {
	half         int64
	host, device device.Memory
	in, out      device.Queue
}

func newCopies(dev device.Device, half int64) (c *copies, err error) {
	c = &copies{half: half}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.host, err = dev.HostAlloc(2 * half); err != nil {
		return c, err
	}
	if c.device, err = dev.Alloc(2 * half); err != nil {
		return c, err
	}
	if c.in, err = dev.Queue("in"); err != nil {
		return c, err
	}
	c.out, err = dev.Queue("out")
	return c, err
}

func (c *copies) close() error {
	var errs []error
	for _, q := range []device.Queue{c.in, c.out} {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	for _, m := range []device.Memory{c.host, c.device} {
		if m != nil {
			errs = append(errs, m.Free())
		}
	}
	return errors.Join(errs...)
}

func (c *copies) part(m device.Memory, half int) device.Buffer {
	return device.Buffer{Memory: m, Offset: int64(half) * c.half, Bytes: c.half}
}

// time is the shortest time of several tries, after one to warm up.
func (c *copies) time(work func() error) (best time.Duration, err error) {
	for i := range copyTries + 1 {
		start := stopwatch.Now()
		if err := errors.Join(work(), c.in.Sync(), c.out.Sync()); err != nil {
			return 0, err
		}
		if took := stopwatch.Since(start); i == 1 || i > 1 && took < best {
			best = took
		}
	}
	return best, nil
}
