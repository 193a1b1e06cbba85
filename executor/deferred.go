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

// Flush completes the last iteration: it waits for copies that carry over and makes
// deferred updates. Reading and writing weights or states flushes by itself.
func (r *runner) Flush() error {
	if err := r.awaitCarried(); err != nil || !r.pending.exists {
		return err
	}
	r.main.args.setUpdates(true, r.pending.args)
	err := r.issueDeferred()
	if err == nil {
		err = r.Sync()
	}
	if err != nil {
		return fmt.Errorf("completing iteration %d: %w", r.pending.args.Iteration, err)
	}
	r.pending.exists = false
	norm, err := r.Norm()
	if err != nil {
		return err
	}
	return r.setClip(0, float32(norm))
}

// Norm of the gradients of the last iteration, the loss scale divided out; NaN when the
// plan does not compute it. Where it is not finite nothing was updated.
func (r *runner) Norm() (float64, error) {
	if r.main.args.clip == nil {
		return math.NaN(), nil
	}
	var norm float32
	err := r.memory.read(r.main.norm, func(b []byte) { norm = floats(b)[1] })
	return float64(norm), err
}

// issueDeferred gives the deferred instructions to their queues. All others only pass on
// what they wait for: two deferred ones may touch the same bytes and be ordered by one
// between them.
func (r *runner) issueDeferred() error {
	for i := range r.main.instructions {
		s, c := &r.main.plan.Instructions[i], r.main.instructions[i]
		if c.queue == nil {
			continue
		}
		c.start, c.end = nil, nil
		if !s.Deferred || r.main.unchanged(i) {
			c.issue = func(device.Queue) error { return nil }
		} else if err := r.showGradients(s); err != nil {
			return err
		}
		if err := r.issue(r.main, s, &c); err != nil {
			return fmt.Errorf("issuing instruction %d (%s): %w", i, s.Verb, err)
		}
	}
	return nil
}

// setClip writes the clip factor and the norm for all devices.
func (r *runner) setClip(factor, norm float32) error {
	seen := map[int]bool{}
	for _, s := range r.memory.plan.Instructions {
		bind, ok := s.Bound(plan.InClip, 0)
		if !ok || seen[bind.Buffer] {
			continue
		}
		seen[bind.Buffer] = true
		err := r.memory.write(deviceBuffer{r.memory.buffer(bind.Buffer), s.Device}, func(b []byte) {
			binary.LittleEndian.PutUint32(b, math.Float32bits(factor))
			binary.LittleEndian.PutUint32(b[4:], math.Float32bits(norm))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
