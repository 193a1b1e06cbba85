package executor

import (
	"errors"
	"fmt"

	"spillway/device"
	"spillway/op"
	"spillway/plan"
)

// A plan with held gradients (plan.Optimizer.Held) is for loops that call forward, backward and
// step by themselves. An iteration computes gradients and adds them to those that are held, which
// are a state of each param and have a home like any other. Update then applies the rule to them.
// Both are the instructions of one plan: updates do the one or the other, and what the other does
// not need is not issued.

// holdLaunch adds the gradient of a span to what is held.
func (c *compiler) holdLaunch(s *plan.Instruction, span plan.Span) (launch, error) {
	call, err := c.plan.Optimizer.HoldCall(span)
	if err != nil {
		return launch{}, err
	}
	grad := call.In[1].DType
	return c.blendLaunch(s, span, call, toHold, span.States[0], plan.Place{Region: plan.InGrad, Offset: grad.Bytes(span.Element)})
}

// averageLaunch adds updated weights to their average.
func (c *compiler) averageLaunch(s *plan.Instruction, span plan.Span) (launch, error) {
	o := c.plan.Optimizer
	call, err := o.AverageCall(span)
	if err != nil {
		return launch{}, err
	}
	weight := plan.Place{Region: plan.InWeight, Offset: span.Offset}
	if o.HasMaster(span.Type) {
		weight = plan.Place{Region: plan.InMaster, Offset: 4 * (span.Element - c.plan.Slabs[s.Slab].Pieces[s.Piece].From)}
	}
	return c.blendLaunch(s, span, call, toAverage, span.States[len(span.States)-1], weight)
}

// blendLaunch mixes what an instruction binds into a state.
func (c *compiler) blendLaunch(s *plan.Instruction, span plan.Span, call op.Call, launches launchedFor, into plan.StatePlace, from plan.Place) (launch, error) {
	k, err := c.devices[s.Device].Kernel(call)
	if err != nil {
		return launch{}, err
	}
	state, err1 := c.region(s, plan.Place{Region: plan.InState, Offset: into.Offset}, into.Type.Bytes())
	source, err2 := c.region(s, from, call.In[1].Bytes())
	clip, err3 := c.region(s, plan.Place{Region: plan.InClip}, 8)
	l := launch{k, device.Launch{Args: c.newUpdateArgs(s, span, launches), Buffers: []device.Buffer{state, source, clip, state}}}
	return l, errors.Join(err1, err2, err3)
}

// Update applies the optimizer's rule to the gradients that are held, each multiplied by a factor.
// The gradients stay as they are. It is for plans that hold gradients.
func (r *runner) Update(args IterationArgs, factor float32) error {
	if o := r.memory.plan.Optimizer; o == nil || !o.Held {
		return fmt.Errorf("the plan for %s holds no gradients to update with; an iteration of it updates by itself", r.memory.plan.Model)
	}
	if err := r.Flush(); err != nil {
		return err
	}
	r.main.args.setUpdates(false, args)
	r.main.args.setUpdates(true, args)
	if err := r.setClip(factor, 0); err != nil {
		return err
	}
	r.main.args.apply = true
	err := r.issueSome(r.main.updates.issued)
	r.main.args.apply = false
	if err = errors.Join(err, r.Sync()); err != nil {
		return fmt.Errorf("updating after iteration %d: %w", args.Iteration, err)
	}
	if r.main.deferred {
		return r.setClip(0, 0)
	}
	return r.setClip(1, 0)
}

// issueSome gives some instructions to their queues. All others only pass on what they wait for:
// two of them may touch the same bytes and be ordered by one between them.
func (r *runner) issueSome(some func(i int) bool) error {
	for i := range r.main.instructions {
		s, c := &r.main.plan.Instructions[i], r.main.instructions[i]
		if c.queue == nil {
			continue
		}
		c.start, c.end = nil, nil
		if !some(i) {
			c.issue = func(device.Queue) error { return nil }
		}
		if err := r.issue(r.main, s, &c); err != nil {
			return fmt.Errorf("issuing instruction %d (%s): %w", i, s.Verb, err)
		}
	}
	return nil
}

// updateMoves are the moves that updates need, and those that take home what they changed.
type updateMoves struct {
	update         []bool // by instruction: it is one
	needed, behind []bool // by instruction
	weights        []bool // by instruction: behind, and of weights
}

// forUpdates finds the moves of updates.
func forUpdates(p *plan.Plan) updateMoves {
	n := len(p.Instructions)
	m := updateMoves{make([]bool, n), make([]bool, n), make([]bool, n), make([]bool, n)}
	reads, changed := make([]bool, len(p.Buffers)), make([]bool, len(p.Buffers))
	eachOf := func(s *plan.Instruction, mark []bool) {
		for _, b := range s.Bindings {
			if b.Region != plan.InGrad && b.Region != plan.InClip {
				mark[b.Buffer] = true
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		switch s := &p.Instructions[i]; {
		case s.Verb == plan.Update:
			m.update[i] = true
			eachOf(s, reads)
		case s.Verb == plan.Move && reads[s.Dst] && !p.Buffers[s.Dst].Home:
			m.needed[i], reads[s.Src] = true, true
		}
	}
	for i := range n {
		switch s := &p.Instructions[i]; {
		case s.Verb == plan.Update:
			eachOf(s, changed)
		case s.Verb == plan.Move && changed[s.Src] && p.Buffers[s.Dst].Class != plan.Gradient:
			class := p.Buffers[s.Src].Class
			m.behind[i], m.weights[i] = true, class == plan.Weight || class == plan.Master
			changed[s.Dst] = changed[s.Dst] || !p.Buffers[s.Dst].Home
		}
	}
	return m
}

// issued are the instructions that updating takes.
func (m updateMoves) issued(i int) bool { return m.update[i] || m.needed[i] || m.behind[i] }
