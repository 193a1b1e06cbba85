package plan

import "fmt"

// P7: each piece is updated once, with a complete gradient, and what changed goes home.

func verifyUpdates(p *Plan) error {
	c := updateCheck{p: p, updated: make([][]int, len(p.Slabs)), home: map[int]changed{}, used: map[int]int{}}
	for k, s := range p.Slabs {
		c.updated[k] = make([]int, len(s.Pieces))
		if err := p.verifyPieces(s); err != nil {
			return err
		}
	}
	for i := range p.Instructions {
		if err := c.instruction(i); err != nil {
			return err
		}
	}
	for k, pieces := range c.updated {
		for i, updated := range pieces {
			if updated == 0 {
				return fmt.Errorf("slab %s, piece %d, is never updated", p.Slabs[k].Name, i)
			}
		}
	}
	for id, last := range c.home {
		return fmt.Errorf("slab %s: what instruction %d changed in buffer %d is never moved home", last.slab, last.instruction, id)
	}
	return nil
}

// verifyPieces: the pieces of a trained slab cover it; one that is frozen has none.
func (p *Plan) verifyPieces(s Slab) error {
	end := int64(0)
	for _, piece := range s.Pieces {
		if piece.From != end || piece.To <= piece.From {
			return fmt.Errorf("slab %s: a piece from %d to %d follows one that ends at %d", s.Name, piece.From, piece.To, end)
		}
		end = piece.To
	}
	want := s.Elements
	if p.Optimizer == nil {
		want = 0
	}
	if end != want {
		return fmt.Errorf("slab %s: its pieces cover %d of %d trained elements", s.Name, end, want)
	}
	return p.verifyStates(&s)
}

// updateCheck walks over the instructions and knows what updates have changed so far.
type updateCheck struct {
	p       *Plan
	updated [][]int         // by slab and piece: the instruction, 0 for none
	home    map[int]changed // by buffer: a changed copy that is not home yet
	used    map[int]int     // by buffer: the update that took it for the gradient
}

// changed is a copy that an update has made different from its home.
type changed struct {
	home, instruction int
	slab              string
}

func (c *updateCheck) instruction(i int) error {
	s := &c.p.Instructions[i]
	switch s.Verb {
	case Move:
		c.carryHome(s)
	case Run:
		if b, ok := s.Bound(InGrad, 0); ok {
			if at, used := c.used[b.Buffer]; used {
				return fmt.Errorf("instruction %d adds to the gradient of slab %s after its update, instruction %d", i, c.p.Slabs[c.p.Instructions[at].Slab].Name, at)
			}
		}
	case Update:
		return c.update(i)
	}
	return nil
}

// update remembers what an update changes away from home, and that the gradient it used
// must not change any more.
func (c *updateCheck) update(i int) error {
	s := &c.p.Instructions[i]
	slab := c.p.Slabs[s.Slab]
	if before := c.updated[s.Slab][s.Piece]; before > 0 {
		return fmt.Errorf("slab %s, piece %d, is updated by instructions %d and %d", slab.Name, s.Piece, before, i)
	}
	c.updated[s.Slab][s.Piece] = i
	piece := slab.Pieces[s.Piece]
	for _, at := range [...]struct {
		region Region
		home   int
	}{{InWeight, slab.Weight}, {InMaster, piece.Master}, {InState, piece.State}} {
		if b, ok := s.Bound(at.region, 0); ok && b.Buffer != at.home {
			c.home[b.Buffer] = changed{at.home, i, slab.Name}
		}
	}
	grad, _ := s.Bound(InGrad, 0)
	c.used[grad.Buffer] = i
	return nil
}

// carryHome follows a changed copy: at home it is done; a stop on the host is on the way
// and must go on.
func (c *updateCheck) carryHome(t *Instruction) {
	copied, ok := c.home[t.Src]
	switch {
	case !ok:
	case t.Dst == copied.home:
		delete(c.home, t.Src)
	case !c.p.Buffers[t.Dst].Home && c.p.TierOf(t.Dst) != OnDevice:
		delete(c.home, t.Src)
		c.home[t.Dst] = copied
	}
}
