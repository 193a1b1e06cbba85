package rig

import (
	"errors"
	"fmt"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/stopwatch"
	"spillway/machine"
	"spillway/op"
)

// mixture is what a call takes longer among others than when it is repeated. A GPU fetches the
// instructions of every other kernel anew, about a microsecond, and so does the thread that
// launches: a row of equal calls shows neither.
func (b *bench) mixture() (extra machine.CallTime, err error) {
	works, err := b.mixed()
	if err != nil || len(works) < 2 {
		return extra, err
	}
	var alone machine.CallTime
	for _, w := range works {
		t, err := w.time(callSpan)
		if err != nil {
			return extra, err
		}
		alone.Device, alone.Launch = alone.Device+t.Device, alone.Launch+t.Launch
	}
	issue := func() error {
		for range mixedRounds {
			for _, w := range works {
				if err := w.issue(1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	together, err := b.together(issue)
	if err != nil {
		return extra, fmt.Errorf("measuring calls in turns: %w", err)
	}
	n := time.Duration(len(works))
	return machine.CallTime{Device: max(together.Device/mixedRounds-alone.Device, 0) / n, Launch: max(together.Launch/mixedRounds-alone.Launch, 0) / n}, nil
}

// mixedRounds is how often each call is launched in a row of different ones.
const mixedRounds = 8

// together is the time of what issue launches: of the device, captured, and of the thread that
// launches, one by one.
func (b *bench) together(issue func() error) (best machine.CallTime, err error) {
	graph, err := b.dev.(device.GraphCapturer).Capture([]device.Queue{b.queue}, issue)
	if err != nil {
		return best, err
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	for i := range workTries + 1 { // the first prepares the others
		start := stopwatch.Now()
		if err := errors.Join(graph.Launch(), b.queue.Sync()); err != nil {
			return best, err
		}
		computed := stopwatch.Since(start)
		start = stopwatch.Now()
		if err := issue(); err != nil {
			return best, err
		}
		launched := stopwatch.Since(start)
		if err := b.queue.Sync(); err != nil {
			return best, err
		}
		if i <= 1 {
			best = machine.CallTime{Device: computed, Launch: launched}
		}
		best.Device, best.Launch = min(best.Device, computed), min(best.Launch, launched)
	}
	return best, nil
}

// mixed are calls of a small transformer that share their memory, ready to be launched. Those
// that the device has no kernel for are left out.
func (b *bench) mixed() (works []*work, err error) {
	const rows, width, inner = 512, 1024, 2816
	of := func(shape ...int64) op.Type { return of(dtype.BF16, shape...) }
	x, wide := of(rows, width), of(rows, inner)
	var calls []op.Call
	var largest int64
	for _, c := range []struct {
		kind op.Kind
		attr op.Attr
		in   []op.Type
	}{
		{op.RMSNorm, op.Attr{Eps: 1e-5}, []op.Type{x, of(width)}},
		{op.MatMul, op.Attr{TransB: true}, []op.Type{x, of(width, width)}},
		{op.Add, op.Attr{}, []op.Type{x, x}},
		{op.MatMul, op.Attr{TransB: true}, []op.Type{x, of(inner, width)}},
		{op.Mul, op.Attr{}, []op.Type{wide, wide}},
		{op.MatMul, op.Attr{TransB: true}, []op.Type{wide, of(width, inner)}},
		{op.Scale, op.Attr{Scale: 0.5}, []op.Type{x}},
		{op.MatMul, op.Attr{}, []op.Type{wide, of(inner, width)}},
		{op.RMSNormGrad, op.Attr{Eps: 1e-5}, []op.Type{x, of(width), x}},
		{op.MatMul, op.Attr{TransA: true, Accumulate: true}, []op.Type{wide, x}},
	} {
		call, err := op.Make(c.kind, c.attr, c.in...)
		if err != nil {
			return nil, err
		}
		k, err := b.dev.Kernel(call)
		if err != nil {
			continue
		}
		_, size := device.Arrange(call, k.Workspace(), b.dev.Info().Alignment)
		calls, largest = append(calls, call), max(largest, size)
	}
	if b.room > 0 && largest > b.room {
		return nil, &device.OutOfMemoryError{Device: b.dev.Info().Name, Asked: largest, Limit: b.room}
	}
	if err := b.free(); err != nil {
		return nil, err
	}
	if b.memory, err = b.dev.Alloc(largest); err != nil {
		return nil, err
	}
	for _, call := range calls {
		w, err := b.prepare(call)
		if err != nil {
			return nil, err
		}
		works = append(works, w)
	}
	return works, nil
}
