package plan

import "fmt"

// The rule about late steps: an iteration completes the one before, and leaves as much to
// the next.

func verifyLate(p *Plan) error {
	c := lateCheck{p: p, weights: map[int]held{}, gradients: map[int]int{}, read: make([]int, len(p.Slabs)), owed: make([]int, len(p.Slabs)), updates: make([]int, len(p.Slabs))}
	for k, s := range p.Slabs {
		c.gradients[s.Gradient] = k
		for _, id := range append([]int{s.Weight}, s.Replicas...) {
			c.weights[id] = held{slab: k}
		}
	}
	delete(c.gradients, -1)
	for i := range p.Steps {
		if err := c.step(i); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, p.Steps[i].Verb, err)
		}
	}
	for k, at := range c.owed {
		if at > 0 {
			return fmt.Errorf("slab %s is updated late in step %d, and no gradient goes home for the next iteration", p.Slabs[k].Name, at-1)
		}
	}
	return nil
}

// lateCheck follows weights and gradients from their homes.
type lateCheck struct {
	p         *Plan
	weights   map[int]held // by buffer that holds some
	gradients map[int]int  // by buffer that holds some: the slab
	read      []int        // by slab: the first run that read its weights, from 1 on
	updates   []int        // by slab: how many late ones there were
	owed      []int        // by slab: a late update after which no gradient went home, from 1 on
	clip      bool         // the norm was made anew
}

// held is weights of a slab, as they are after so many of its late updates.
type held struct{ slab, updates int }

func (c *lateCheck) step(i int) error {
	s := &c.p.Steps[i]
	switch {
	case s.Verb == Move:
		c.move(s)
	case s.Verb == UpdateRun && s.Late:
		return c.update(i)
	case s.Late:
		return fmt.Errorf("it is neither a move nor an update, and late")
	case s.Verb == Run:
		return c.run(i)
	case s.Verb == Reduce:
		_, clip := s.Bound(InClip, 0)
		c.clip = c.clip || clip
	}
	return nil
}

// run notes what is read, which must be as the late updates have left it.
func (c *lateCheck) run(i int) error {
	for _, b := range c.p.Steps[i].Bind {
		h, ok := c.weights[b.Buffer]
		if !ok || b.Region != InWeight {
			continue
		}
		if h.updates < c.updates[h.slab] {
			return fmt.Errorf("it reads weights of slab %s that were not brought there since its late update", c.p.Slabs[h.slab].Name)
		}
		if c.read[h.slab] == 0 {
			c.read[h.slab] = i + 1
		}
	}
	return nil
}

// move follows what is carried from home and back, and gradients that go there.
func (c *lateCheck) move(s *Step) {
	if h, ok := c.weights[s.Src]; ok {
		c.weights[s.Dst] = h
	}
	if k, ok := c.gradients[s.Dst]; ok && c.p.Buffers[s.Dst].Home {
		c.owed[k] = 0
		return
	}
	if k, ok := c.gradients[s.Src]; ok && s.Late {
		c.gradients[s.Dst] = k
	}
}

func (c *lateCheck) update(i int) error {
	s := &c.p.Steps[i]
	name := c.p.Slabs[s.Slab].Name
	grad, _ := s.Bound(InGrad, 0)
	if k, ok := c.gradients[grad.Buffer]; !ok || k != s.Slab {
		return fmt.Errorf("slab %s is updated late with a gradient that did not rest at home", name)
	}
	if c.read[s.Slab] > 0 {
		return fmt.Errorf("slab %s is updated late, after step %d has read its weights", name, c.read[s.Slab]-1)
	}
	if !c.p.Update.Clip || c.clip {
		return fmt.Errorf("slab %s is updated late without the norm of its gradients", name)
	}
	weight, _ := s.Bound(InWeight, 0)
	c.updates[s.Slab]++
	c.weights[weight.Buffer] = held{s.Slab, c.updates[s.Slab]}
	c.owed[s.Slab] = i + 1
	return nil
}
