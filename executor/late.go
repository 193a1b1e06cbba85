package executor

import (
	"fmt"

	"spillway/device"
)

// With clipping an update needs the norm of all gradients. A plan may leave such updates
// to the next iteration, as late steps before the first use of what they change. Until
// then they are owed: nobody reads or writes weights or states without settling first.
// With a clip factor of 0 an update leaves everything as it is, so that late steps may
// run where nothing is owed.

// owe remembers the numbers of an iteration whose updates are not all made. Whoever looks
// at gradients is shown them at once.
func (e *Executor) postpone(n IterationArgs) error {
	if !e.deferred {
		return nil
	}
	e.pending, e.hasPending = n, true
	if e.onGradient == nil {
		return nil
	}
	return e.Flush()
}

// Settle makes the updates that the last iteration left to the next one. Reading and
// writing weights or states settles by itself. It waits for what trails, too.
func (e *Executor) Flush() error {
	if err := e.awaitCarried(); err != nil || !e.hasPending {
		return err
	}
	for i := range e.updates {
		if e.updates[i].deferred {
			e.updates[i].set(e.pending)
		}
	}
	err := e.issueDeferred()
	if err == nil {
		err = e.Sync()
	}
	if err != nil {
		return fmt.Errorf("completing iteration %d: %w", e.pending.Iteration, err)
	}
	e.hasPending = false
	norm, err := e.Norm()
	if err != nil {
		return err
	}
	return e.setClip(0, float32(norm))
}

func noop(device.Queue) error { return nil }

// issueLate gives the late steps to their queues. All others only pass on what they wait
// for: two late steps may touch the same bytes and be ordered by one between them.
func (e *Executor) issueDeferred() error {
	for i := range e.instructions {
		s, p := &e.plan.Instructions[i], e.instructions[i]
		if p.queue == nil {
			continue
		}
		p.start, p.end = nil, nil
		if !s.Deferred {
			p.issue = noop
		} else if err := e.observe(s); err != nil {
			return err
		}
		if err := e.issueInstruction(s, &p); err != nil {
			return fmt.Errorf("issuing step %d (%s): %w", i, s.Verb, err)
		}
	}
	return nil
}
