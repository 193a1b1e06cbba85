package plan

import "fmt"

// The rule about what trails: the next iteration waits for it where it must.

func verifyCarryOver(p *Plan) error {
	trails, ended := false, make([]bool, len(p.Devices)*len(Lanes))
	for i := len(p.Instructions) - 1; i >= 0; i-- {
		s := &p.Instructions[i]
		if err := p.verifyCarriedOver(i, ended); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.Verb, err)
		}
		trails = trails || s.CarriesOver
		ended[s.LaneIndex()] = ended[s.LaneIndex()] || s.Verb != Free && !s.CarriesOver
	}
	if !trails {
		return nil
	}
	o, accesses := newOrderCheck(p, 2), p.Accesses()
	if err := o.walk(accesses); err != nil {
		return err
	}
	o.nextIteration()
	return o.walk(accesses)
}

// verifyTrail checks a step by itself, given which lanes have steps behind it that do
// not trail.
func (p *Plan) verifyCarriedOver(i int, ended []bool) error {
	s := &p.Instructions[i]
	for _, a := range s.AfterPrevious {
		if a <= i || a >= len(p.Instructions) || !p.Instructions[a].CarriesOver {
			return fmt.Errorf("it waits for step %d of the iteration before, which does not trail behind it", a)
		}
	}
	switch {
	case s.CarriesOver && !p.CanCarryOver(s):
		return fmt.Errorf("it trails, and is no copy from a device to the host for the next iteration")
	case s.CarriesOver && ended[s.LaneIndex()]:
		return fmt.Errorf("it trails, and one behind it in its lane does not")
	}
	return nil
}

// CanTrail says whether a step is one that may be under way when its iteration has
// ended: a copy from a device to the host of something that callers do not find there
// before they have waited, as they do results. What rests on disk is whole after every
// iteration, so beside a disk nothing trails.
func (p *Plan) CanCarryOver(s *Instruction) bool {
	if s.Verb != Move || s.Lane != Out || p.TierOf(s.Src) != OnDevice || p.hasDisk() {
		return false
	}
	to, class := p.TierOf(s.Dst), p.Buffers[s.Dst].Class
	return (to == OnHost || to == Pinned) && class != ResultData && class != BatchData
}

func (p *Plan) hasDisk() bool {
	for _, a := range p.Arenas {
		if a.Tier == OnDisk {
			return true
		}
	}
	return false
}
