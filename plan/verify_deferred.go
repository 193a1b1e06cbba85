package plan

import "fmt"

// P8: an iteration completes the previous one, and leaves as much to the next.

func verifyDeferred(p *Plan) error {
	c := deferredCheck{p: p, weights: map[int]slabWeights{}, gradients: map[int]int{}, read: make([]int, len(p.Slabs)), pending: make([]int, len(p.Slabs)), updates: make([]int, len(p.Slabs))}
	for k, s := range p.Slabs {
		c.gradients[s.Gradient] = k
		for _, id := range append([]int{s.Weight}, s.Replicas...) {
			c.weights[id] = slabWeights{slab: k}
		}
	}
	delete(c.gradients, -1)
	for i := range p.Instructions {
		if err := c.instruction(i); err != nil {
			return fmt.Errorf("instruction %d, %s: %w", i, p.Instructions[i].Verb, err)
		}
	}
	for k, at := range c.pending {
		if at > 0 {
			return fmt.Errorf("slab %s has a deferred update, instruction %d, and no gradient goes home for the next iteration", p.Slabs[k].Name, at-1)
		}
	}
	return nil
}

// deferredCheck follows copies of weights and gradients from their homes on.
type deferredCheck struct {
	p         *Plan
	weights   map[int]slabWeights // by buffer: weights it holds
	gradients map[int]int         // by buffer: the slab whose gradient it holds
	read      []int               // by slab: 1 + the first run that read its weights
	updates   []int               // by slab: its deferred updates so far
	pending   []int               // by slab: 1 + a deferred update after which no gradient went home
	clip      bool                // the norm was computed anew
}

// slabWeights are the weights of a slab after a number of its deferred updates.
type slabWeights struct{ slab, updates int }

func (c *deferredCheck) instruction(i int) error {
	s := &c.p.Instructions[i]
	switch {
	case s.Verb == Move:
		c.move(s)
	case s.Verb == Update && s.Deferred:
		return c.update(i)
	case s.Deferred:
		return fmt.Errorf("it is deferred, and neither a move nor an update")
	case s.Verb == Run:
		return c.run(i)
	case s.Verb == Reduce:
		_, clip := s.Bound(InClip, 0)
		c.clip = c.clip || clip
	}
	return nil
}

// run remembers that weights were read, which must be as deferred updates left them.
func (c *deferredCheck) run(i int) error {
	for _, b := range c.p.Instructions[i].Bindings {
		h, ok := c.weights[b.Buffer]
		if !ok || b.Region != InWeight {
			continue
		}
		if h.updates < c.updates[h.slab] {
			return fmt.Errorf("it reads weights of slab %s from before its deferred update", c.p.Slabs[h.slab].Name)
		}
		if c.read[h.slab] == 0 {
			c.read[h.slab] = i + 1
		}
	}
	return nil
}

// move follows weights from home and back, and gradients that go home.
func (c *deferredCheck) move(s *Instruction) {
	if h, ok := c.weights[s.Src]; ok {
		c.weights[s.Dst] = h
	}
	if k, ok := c.gradients[s.Dst]; ok && c.p.Buffers[s.Dst].Home {
		c.pending[k] = 0
		return
	}
	if k, ok := c.gradients[s.Src]; ok && s.Deferred {
		c.gradients[s.Dst] = k
	}
}

func (c *deferredCheck) update(i int) error {
	s := &c.p.Instructions[i]
	name := c.p.Slabs[s.Slab].Name
	grad, _ := s.Bound(InGrad, 0)
	if k, ok := c.gradients[grad.Buffer]; !ok || k != s.Slab {
		return fmt.Errorf("the deferred update of slab %s takes a gradient that was not stored at home", name)
	}
	if c.read[s.Slab] > 0 {
		return fmt.Errorf("the deferred update of slab %s comes after instruction %d has read its weights", name, c.read[s.Slab]-1)
	}
	if !c.p.Optimizer.Clip || c.clip {
		return fmt.Errorf("the deferred update of slab %s has not the norm of its gradients", name)
	}
	weight, _ := s.Bound(InWeight, 0)
	c.updates[s.Slab]++
	c.weights[weight.Buffer] = slabWeights{s.Slab, c.updates[s.Slab]}
	c.pending[s.Slab] = i + 1
	return nil
}
