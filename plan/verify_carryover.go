package plan

import (
	"fmt"
	"slices"
)

// P9: the next iteration waits for what carries over where it must.

func verifyCarryOver(p *Plan) error {
	carries, ended := false, make([]bool, len(p.Devices)*len(Lanes))
	for i := len(p.Instructions) - 1; i >= 0; i-- {
		s := &p.Instructions[i]
		if err := p.verifyCarriedOver(i, ended); err != nil {
			return fmt.Errorf("instruction %d, %s: %w", i, s.Verb, err)
		}
		carries = carries || s.CarriesOver
		ended[s.LaneIndex()] = ended[s.LaneIndex()] || s.Verb != Free && !s.CarriesOver
	}
	if !carries {
		return nil
	}
	o, accesses := newOrderCheck(p, 2), p.Accesses()
	if err := o.walk(accesses); err != nil {
		return err
	}
	o.nextIteration()
	return o.walk(accesses)
}

// verifyCarriedOver checks an instruction by itself, given which lanes have later ones
// that end with the iteration.
func (p *Plan) verifyCarriedOver(i int, ended []bool) error {
	s := &p.Instructions[i]
	for _, a := range s.AfterPrevious {
		if a <= i || a >= len(p.Instructions) || !p.Instructions[a].CarriesOver {
			return fmt.Errorf("it waits for instruction %d of the previous iteration, which does not carry over", a)
		}
	}
	switch {
	case s.CarriesOver && !p.CanCarryOver(s):
		return fmt.Errorf("it carries over, and is no copy from a device to the host, or of the next batch, for later iterations")
	case s.CarriesOver && ended[s.LaneIndex()]:
		return fmt.Errorf("it carries over, and a later one of its lane does not")
	}
	return nil
}

// CanCarryOver says whether an instruction may still run when its iteration has ended: it
// brings the next batch, or is a copy from a device to the host of something that callers do
// not look at between iterations, as they do at results. State on disk is complete after every iteration, so
// nothing else than the next batch carries over in a plan with a disk.
func (p *Plan) CanCarryOver(s *Instruction) bool {
	if p.BringsNextBatch(s) {
		return true
	}
	if s.Verb != Move || s.Lane != Out || p.TierOf(s.Src) != OnDevice || slices.ContainsFunc(p.Arenas, func(a Arena) bool { return a.Tier == OnDisk }) {
		return false
	}
	to, class := p.TierOf(s.Dst), p.Buffers[s.Dst].Class
	return (to == OnHost || to == Pinned) && class != ResultData && class != BatchData
}
