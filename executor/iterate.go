package executor

import (
	"context"
	"errors"
	"fmt"

	"spillway/device"
	"spillway/plan"
)

// Iterate runs all instructions of the plan once. The tensors of the batch must be in
// place (BatchTensor). When it returns, results and the norm are there; only copies that
// the plan carries over may still run. An error of such a copy is returned by whoever
// waits for it: the next Iterate, a reader or a writer, Sync or Close. After an error the
// contents of the arenas are undefined: restore a checkpoint.
func (e *Executor) Iterate(ctx context.Context, args IterationArgs) error {
	e.main.args.set(args, e.pending.args)
	before := e.carried
	if err := e.start(ctx, e.main); err != nil {
		return errors.Join(err, e.Sync())
	}
	if err := e.finish(args); err != nil {
		return fmt.Errorf("iteration %d%s: %w", args.Iteration, before.text(), err)
	}
	e.tally.Iterations++
	e.reportEvents()
	return e.postpone(args)
}

// issueAll gives all instructions of a program to their queues.
func (e *Executor) issueAll(ctx context.Context, p *program) error {
	p.swapEvents()
	if err := e.tracer.begin(e.memory); err != nil {
		return err
	}
	for i := range p.instructions {
		c := &p.instructions[i]
		if c.queue == nil {
			continue
		}
		s := &p.plan.Instructions[i]
		var err error
		if !s.Deferred { // gradients of deferred updates are shown by Flush
			err = e.showGradients(s)
		}
		if err == nil {
			err = e.issue(p, s, c)
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
func (e *Executor) issue(p *program, s *plan.Instruction, c *compiled) error {
	if err := e.waitFor(p, s, c.queue); err != nil {
		return err
	}
	if c.start != nil {
		if err := c.queue.Record(c.start); err != nil {
			return err
		}
	}
	if err := c.issue(c.queue); err != nil {
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
func (e *Executor) waitFor(p *program, s *plan.Instruction, q device.Queue) error {
	for _, a := range s.After {
		if err := q.Wait(p.instructions[a].done); err != nil {
			return err
		}
	}
	if !e.carried.running {
		return nil
	}
	for _, a := range s.AfterPrevious {
		if err := q.Wait(p.instructions[a].last); err != nil {
			return err
		}
	}
	return nil
}

// Sync waits for all queues, also for what was carried over, and returns their errors.
func (e *Executor) Sync() error {
	e.carried.running = false
	return e.memory.sync()
}
