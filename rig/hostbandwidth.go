package rig

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/stopwatch"
	"spillway/machine"
	"spillway/op"
	"spillway/optim"
	"spillway/units"
)

// watchTime is how long optimizer steps are timed; tests have less of it.
var watchTime = 500 * time.Millisecond

// measureHostBandwidth runs optimizer steps on the CPU while copies go both ways, and counts
// what the host's memory carries of both.
func measureHostBandwidth(d *machine.Device, dev device.Device, s calibrationSizes) (err error) {
	if s.Host == nil {
		return nil
	}
	c, err := newCopies(dev, int64(s.Copy))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if c.host.Size() < linkBytes { // which caches would hold
		if err := c.host.Free(); err != nil {
			return err
		}
		if c.host, err = dev.HostAlloc(min(linkBytes, 16*c.host.Size())); err != nil {
			return err
		}
	}
	var both busyLink
	var copies sync.WaitGroup
	var inErr, outErr error
	half := c.host.Size() / 2
	hosts := func(from int64) (parts []device.Buffer) {
		for at := from; at+c.half <= from+half; at += c.half {
			parts = append(parts, device.Buffer{Memory: c.host, Offset: at, Bytes: c.half})
		}
		return parts
	}
	on := func(n int) []device.Buffer { return []device.Buffer{c.part(c.device, n)} }
	copies.Go(func() { inErr = both.repeat(dev, c.in, on(0), hosts(0)) })
	copies.Go(func() { outErr = both.repeat(dev, c.out, hosts(half), on(1)) })
	d.Link.HostBandwidth, err = watchUpdates(s.Host, s.Params, both.bytes.Load)
	both.stop.Store(true)
	copies.Wait()
	return errors.Join(err, inErr, outErr)
}

// watchUpdates is the memory bandwidth, reads plus writes, of AdamW steps on so many params of
// f32, plus that of copies; copied returns the bytes of copies so far.
func watchUpdates(host device.Device, params int64, copied func() int64) (rate units.Rate, err error) {
	b, err := newBench(host)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	call, err := AdamW(params)
	if err != nil {
		return 0, err
	}
	w, err := b.prepare(call)
	if err != nil {
		return 0, err
	}
	before, start, bytes := copied(), stopwatch.Now(), int64(0)
	for bytes == 0 || stopwatch.Since(start) < watchTime {
		if _, err := w.row(1); err != nil {
			return 0, err
		}
		bytes += call.Cost().Bytes
	}
	took := stopwatch.Since(start)
	return units.Rate(float64(bytes+copied()-before) / took.Seconds()), nil
}

// AdamW is a call that updates so many params in f32.
func AdamW(params int64) (op.Call, error) { return plain[optim.Adam](dtype.F32, 1, params) }

// busyLink copies until it is stopped.
type busyLink struct {
	bytes atomic.Int64 // copied so far
	stop  atomic.Bool
}

// repeat always has two copies queued, so that the link never waits for this goroutine. It
// copies from one part after the other, to one part after the other.
func (b *busyLink) repeat(dev device.Device, q device.Queue, to, from []device.Buffer) error {
	var done [2]device.Event
	n := 0
	next := func(i int) error {
		err := errors.Join(q.Copy(to[n%len(to)], from[n%len(from)]), q.Record(done[i]))
		n++
		return err
	}
	for i := range done {
		var err error
		if done[i], err = dev.Event(); err != nil {
			return err
		}
		if err := next(i); err != nil {
			return err
		}
	}
	for i := 0; !b.stop.Load(); i = 1 - i {
		if err := q.SyncTo(done[i]); err != nil {
			return err
		}
		b.bytes.Add(from[0].Bytes)
		if err := next(i); err != nil {
			return err
		}
	}
	return q.Sync()
}

// linkBytes is how much host memory copies go to and from: more than caches hold.
const linkBytes = 1 << 30
