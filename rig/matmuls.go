package rig

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/stopwatch"
	"spillway/op"
	"spillway/units"
)

// burstRate measures matmuls of a type in a burst of some milliseconds; 0 where the device has
// none.
func burstRate(dev device.Device, t dtype.Type, side int64) (units.Flops, error) {
	return matmulRate(dev, t, side, func(b *bench, call op.Call) (time.Duration, error) { return b.time(call, largeSpan) })
}

// sustainedRate measures the same matmuls one after the other without a pause: GPUs soon lower
// their clock to stay within their power limit. The time before that does not count.
func sustainedRate(dev device.Device, t dtype.Type, side int64, span time.Duration) (units.Flops, error) {
	return matmulRate(dev, t, side, func(b *bench, call op.Call) (time.Duration, error) { return b.sustained(call, span) })
}

// matmulRate is the rate of a matmul of square matrices; timed says how long one takes.
func matmulRate(dev device.Device, t dtype.Type, side int64, timed func(*bench, op.Call) (time.Duration, error)) (rate units.Flops, err error) {
	call, err := op.Make(op.MatMul, op.Attr{}, of(t, side, side), of(t, side, side))
	if err != nil {
		return 0, err
	}
	b, err := newBench(dev)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	took, err := timed(b, call)
	var none *device.NoKernelError
	if errors.As(err, &none) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("measuring matmuls of %v: %w", t, err)
	}
	return units.Flops(call.Cost().Flops / took.Seconds()), nil
}

// settledShare is the share of the time after which the speed of a GPU does not change any
// more. An H200 slows down within 0.1 s, and once more after 0.9 s.
const settledShare = 0.4

// sustained is the time per launch of a call that is launched without pauses for span.
func (b *bench) sustained(call op.Call, span time.Duration) (time.Duration, error) {
	w, err := b.prepare(call)
	if err != nil {
		return 0, err
	}
	var settled []time.Duration
	for start := stopwatch.Now(); len(settled) == 0 || stopwatch.Since(start) < span; {
		counts := stopwatch.Since(start) >= time.Duration(settledShare*float64(span))
		took, err := w.row(launchesIn(largeSpan, w.once))
		if err != nil {
			return 0, err
		}
		if counts {
			settled = append(settled, took)
		}
	}
	slices.Sort(settled)
	return settled[len(settled)/2], nil // what disturbed a few does not count
}
