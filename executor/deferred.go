package executor

import (
	"encoding/binary"
	"fmt"
	"math"

	"spillway/device"
	"spillway/plan"
)

// With clipping an update needs the norm of all gradients. A plan may leave such updates
// to the next iteration, as deferred instructions before the first use of what they
// change. Until then they are pending: whoever reads or writes weights or states flushes
// first. With a clip factor of 0 an update leaves everything as it is, so that deferred
// updates may run where none is pending.

// pending is the iteration whose updates are not all made.
type pending struct {
	exists bool
	args   IterationArgs
}

// postpone remembers an iteration whose updates are not all made. Whoever looks at
// gradients sees them at once.
func (e *Executor) postpone(args IterationArgs) error {
	if !e.main.deferred {
		return nil
	}
	e.pending = pending{true, args}
	if e.onGradient == nil {
		return nil
	}
	return e.Flush()
}

// Flush completes the last iteration: it waits for copies that carry over and makes
// deferred updates. Reading and writing weights or states flushes by itself.
func (e *Executor) Flush() error {
	if err := e.awaitCarried(); err != nil || !e.pending.exists {
		return err
	}
	e.main.args.setDeferred(e.pending.args)
	err := e.issueDeferred()
	if err == nil {
		err = e.Sync()
	}
	if err != nil {
		return fmt.Errorf("completing iteration %d: %w", e.pending.args.Iteration, err)
	}
	e.pending.exists = false
	norm, err := e.Norm()
	if err != nil {
		return err
	}
	return e.setClip(0, float32(norm))
}

func noop(device.Queue) error { return nil }

// issueDeferred gives the deferred instructions to their queues. All others only pass on
// what they wait for: two deferred ones may touch the same bytes and be ordered by one
// between them.
func (e *Executor) issueDeferred() error {
	for i := range e.main.instructions {
		s, c := &e.main.plan.Instructions[i], e.main.instructions[i]
		if c.queue == nil {
			continue
		}
		c.start, c.end = nil, nil
		if !s.Deferred {
			c.issue = noop
		} else if err := e.showGradients(s); err != nil {
			return err
		}
		if err := e.issue(e.main, s, &c); err != nil {
			return fmt.Errorf("issuing instruction %d (%s): %w", i, s.Verb, err)
		}
	}
	return nil
}

// setClip writes the clip factor and the norm for all devices.
func (e *Executor) setClip(factor, norm float32) error {
	seen := map[int]bool{}
	for _, s := range e.Plan().Instructions {
		bind, ok := s.Bound(plan.InClip, 0)
		if !ok || seen[bind.Buffer] {
			continue
		}
		seen[bind.Buffer] = true
		err := e.memory.write(deviceBuffer{e.memory.buffer(bind.Buffer), s.Device}, func(b []byte) {
			binary.LittleEndian.PutUint32(b, math.Float32bits(factor))
			binary.LittleEndian.PutUint32(b[4:], math.Float32bits(norm))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
