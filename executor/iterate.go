package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spillway/device"
	"spillway/internal/stopwatch"
	"spillway/plan"
)

// runner issues the instructions of a plan and of its phases, and knows what of an iteration
// is not done yet.
type runner struct {
	memory  *memory
	main    *program
	phases  map[string]*program
	carried carriedOver
	next    nextBatch
	pending pending
	tracer  tracer
	// onGradient is called with complete gradients; see OnGradient.
	onGradient func(Tensor) error
	tally      *tally
	issuing    time.Duration // see Issuing
	capturing  bool          // what is issued becomes a graph
	replayed   bool          // the iteration was replayed from one
}

// Issuing is how long the thread that gives instructions to the queues did so, in all
// iterations.
func (r *runner) Issuing() time.Duration { return r.issuing }

// Iterate runs all instructions of the plan once. The tensors of the batch must be in
// place (BatchTensor), or have been sent (Upload). When it returns, results and the norm are there; only copies that
// the plan carries over may still run. An error of such a copy is returned by whoever
// waits for it: the next Iterate, a reader or a writer, Sync or Close. After an error the
// contents of the arenas are undefined: restore a checkpoint.
func (r *runner) Iterate(ctx context.Context, args IterationArgs) error {
	r.main.args.set(args, r.pending.args)
	before, began := r.carried, stopwatch.Now()
	err := r.Upload()
	if err == nil {
		err = r.start(ctx, r.main)
	}
	if err != nil {
		return errors.Join(err, r.Sync())
	}
	r.issuing += stopwatch.Since(began)
	if args.Meanwhile != nil {
		args.Meanwhile()
	}
	if err := r.finish(args); err != nil {
		if before.running {
			return fmt.Errorf("iteration %d, or copies carried over from iteration %d: %w", args.Iteration, before.of, err)
		}
		return fmt.Errorf("iteration %d: %w", args.Iteration, err)
	}
	r.tally.Iterations++
	if err := r.reportEvents(r.main); err != nil {
		return err
	}
	if r.main.deferred {
		r.pending = pending{true, args}
	}
	if r.main.deferred && r.onGradient != nil { // whoever looks at gradients sees them at once
		return r.Flush()
	}
	return nil
}

// RunPhase runs the instructions of a phase once. Updates of the last iteration are
// completed first, so that the phase sees the weights after it.
func (r *runner) RunPhase(ctx context.Context, name string, args IterationArgs) error {
	phase := r.phases[name]
	if phase == nil {
		return fmt.Errorf("the plan for %s has no phase %q", r.memory.plan.Model, name)
	}
	if err := r.Flush(); err != nil {
		return err
	}
	phase.args.set(args, args)
	idle := !r.carried.running && !r.next.running // nothing else is with the queues
	err := r.until(ctx, func() error {
		err := r.start(ctx, phase)
		if err == nil && idle {
			return r.ended(phase)
		}
		return errors.Join(err, r.Sync())
	})
	if err != nil {
		return fmt.Errorf("phase %s: %w", name, err)
	}
	return r.reportEvents(phase)
}

// ended waits for the lanes of a phase; nothing runs in others. Asking a queue takes a call of the driver, and a step of few kernels
// is waited for often. A graph is launched in the first lane.
func (r *runner) ended(phase *program) (met error) {
	for i, q := range r.memory.queues {
		if phase.ends[i].until >= 0 || i == 0 {
			met = errors.Join(met, q.Sync())
		}
	}
	return met
}

// until calls do, which issues work that changes no weights and waits for it. Where the context ends
// meanwhile, queues skip what they have not begun.
func (r *runner) until(ctx context.Context, do func() error) error {
	if ctx.Done() == nil {
		return do()
	}
	set := func(ctx context.Context) (met error) {
		for _, q := range r.memory.queues {
			if q, can := q.(device.Interruptible); can {
				met = errors.Join(met, q.Until(ctx))
			}
		}
		return met
	}
	err := set(ctx)
	if err == nil {
		err = do()
	}
	err = errors.Join(err, set(nil))
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // once, not once for each queue
	}
	return err
}

// issueAll gives all instructions of a program to their queues, but for those that are issued apart.
func (r *runner) issueAll(ctx context.Context, p *program) error {
	for i := range p.instructions {
		c := &p.instructions[i]
		if c.queue == nil || c.apart {
			continue
		}
		s := &p.plan.Instructions[i]
		var err error
		if !s.Deferred { // gradients of deferred updates are shown by Flush
			err = r.showGradients(s)
		}
		if err == nil && p.unchanged(i) {
			nothing := *c
			nothing.issue = func(device.Queue) error { return nil }
			err = r.issue(p, s, &nothing)
		} else if err == nil {
			err = r.issue(p, s, c)
		}
		if err != nil {
			return fmt.Errorf("issuing instruction %d (%s): %w", i, s.Verb, err)
		}
		if i%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// issue gives an instruction to its queue, behind what it waits for.
func (r *runner) issue(p *program, s *plan.Instruction, c *compiled) error {
	if err := r.waitFor(p, s, c.queue); err != nil {
		return err
	}
	if c.start != nil {
		if err := c.queue.Record(c.start); err != nil {
			return err
		}
	}
	var err error
	if c.marks != nil {
		err = r.issueMarked(c)
	} else {
		err = c.issue(c.queue)
	}
	if err != nil {
		return err
	}
	if c.end != nil {
		if err := c.queue.Record(c.end); err != nil {
			return err
		}
	}
	if c.done == nil {
		return nil
	}
	return c.queue.Record(c.done)
}

// waitFor has a queue wait for what must be done before an instruction: in its iteration,
// and in the previous one as long as copies of that may run.
func (r *runner) waitFor(p *program, s *plan.Instruction, q device.Queue) error {
	for _, a := range s.After {
		if r.capturing && p.instructions[a].apart {
			continue // a graph follows what its queue was given before
		}
		if err := q.Wait(p.instructions[a].done); err != nil {
			return err
		}
	}
	for _, a := range s.AfterPrevious {
		if !r.carried.running && !p.instructions[a].apart {
			continue
		}
		if err := q.Wait(p.instructions[a].last); err != nil {
			return err
		}
	}
	return nil
}

// Sync waits for all queues, also for what was carried over, and returns their errors.
func (r *runner) Sync() (met error) {
	r.carried.running, r.next.running = false, false
	for _, q := range r.memory.queues {
		met = errors.Join(met, q.Sync())
	}
	return met
}
