package plan

import "fmt"

// The rules about time: what is alive when, and what is ordered before what.

func verifyLives(p *Plan) error {
	alive := make([]bool, len(p.Buffers))
	freed := make([]bool, len(p.Buffers))
	live := make([][]int, len(p.Arenas)) // buffers that are no homes
	accesses := p.Accesses()
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Verb == Free {
			if err := p.endLife(s.Dst, alive, freed, live); err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
			continue
		}
		for _, a := range accesses[i] {
			b := p.Buffers[a.Buffer]
			if b.Home || alive[a.Buffer] {
				continue
			}
			if freed[a.Buffer] {
				return fmt.Errorf("step %d, %s: buffer %s is used after its free", i, s.Verb, b.Name)
			}
			if a.Read {
				return fmt.Errorf("step %d, %s: buffer %s is read before it is written", i, s.Verb, b.Name)
			}
			for _, o := range live[b.Arena] {
				if other := p.Buffers[o]; other.Offset < b.Offset+b.Bytes && b.Offset < other.Offset+other.Bytes {
					return fmt.Errorf("step %d, %s: buffers %s and %s are alive in the same bytes", i, s.Verb, other.Name, b.Name)
				}
			}
			alive[a.Buffer] = true
			live[b.Arena] = append(live[b.Arena], a.Buffer)
		}
	}
	for _, left := range live {
		for _, id := range left {
			return fmt.Errorf("buffer %s is never freed", p.Buffers[id].Name)
		}
	}
	return nil
}

func (p *Plan) endLife(id int, alive, freed []bool, live [][]int) error {
	b := p.Buffers[id]
	if b.Home || !alive[id] {
		return fmt.Errorf("buffer %s is freed but is a home or not alive", b.Name)
	}
	alive[id], freed[id] = false, true
	list := live[b.Arena]
	for i, o := range list {
		if o == id {
			live[b.Arena] = append(list[:i], list[i+1:]...)
			break
		}
	}
	return nil
}

// past is an access that later ones may conflict with.
type past struct {
	lo, hi int64
	step   int
	lane   int
	write  bool
}

// verifyOrder keeps, for every step, the last step of each lane that is surely
// done before it starts, and looks every access up against the earlier ones to
// the same bytes.
func verifyOrder(p *Plan) error {
	lanes := len(p.Devices) * len(Lanes)
	done := make([][]int, len(p.Steps))
	last := make([]int, lanes)
	for i := range last {
		last[i] = -1
	}
	history := make([][]past, len(p.Arenas))
	accesses := p.Accesses()
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Verb == Free {
			continue
		}
		l := laneNumber(s)
		done[i] = p.doneBefore(s, last[l], done, lanes)
		last[l] = i
		for _, a := range accesses[i] {
			b := p.Buffers[a.Buffer]
			now := past{b.Offset, b.Offset + b.Bytes, i, l, a.Write}
			h, err := p.orderAgainst(history[b.Arena], now, done[i])
			if err != nil {
				return err
			}
			history[b.Arena] = append(h, now)
		}
	}
	return nil
}

func laneNumber(s *Step) int {
	for i, l := range Lanes {
		if s.Lane == l {
			return s.Device*len(Lanes) + i
		}
	}
	return 0
}

func (p *Plan) doneBefore(s *Step, previous int, done [][]int, lanes int) []int {
	known := make([]int, lanes)
	for i := range known {
		known[i] = -1
	}
	learn := func(step int) {
		if step < 0 {
			return
		}
		for l, at := range done[step] {
			known[l] = max(known[l], at)
		}
		l := laneNumber(&p.Steps[step])
		known[l] = max(known[l], step)
	}
	learn(previous)
	for _, a := range s.After {
		learn(a)
	}
	return known
}

// orderAgainst checks an access against earlier ones and drops those that it
// covers: whoever is ordered after it is ordered after them.
func (p *Plan) orderAgainst(history []past, now past, known []int) ([]past, error) {
	rest := history[:0]
	for _, o := range history {
		if o.lo >= now.hi || now.lo >= o.hi || !o.write && !now.write {
			if !(o.lane == now.lane && !o.write && o.lo >= now.lo && o.hi <= now.hi) {
				rest = append(rest, o)
			}
			continue
		}
		if o.step != now.step && known[o.lane] < o.step {
			return nil, fmt.Errorf("steps %d (%s) and %d (%s) touch the same bytes in no order", o.step, p.Steps[o.step].Verb, now.step, p.Steps[now.step].Verb)
		}
		if !(now.write && now.lo <= o.lo && o.hi <= now.hi) {
			rest = append(rest, o)
		}
	}
	return rest, nil
}

func verifyUpdates(p *Plan) error {
	updated := make([][]int, len(p.Slabs)) // by slab and piece: the step, 0 for none
	for k, s := range p.Slabs {
		updated[k] = make([]int, len(s.Pieces))
		if err := p.verifyPieces(s); err != nil {
			return err
		}
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Verb != UpdateRun {
			continue
		}
		if before := updated[s.Slab][s.Piece]; before > 0 {
			return fmt.Errorf("slab %s, piece %d, is updated in steps %d and %d", p.Slabs[s.Slab].Name, s.Piece, before, i)
		}
		updated[s.Slab][s.Piece] = i
		if err := p.afterUpdate(i); err != nil {
			return err
		}
	}
	for k, pieces := range updated {
		for i, step := range pieces {
			if step == 0 {
				return fmt.Errorf("slab %s, piece %d, is never updated", p.Slabs[k].Name, i)
			}
		}
	}
	return nil
}

// verifyPieces: a slab that is trained is covered by its pieces, another has none.
func (p *Plan) verifyPieces(s Slab) error {
	end := int64(0)
	for _, piece := range s.Pieces {
		if piece.From != end || piece.To <= piece.From {
			return fmt.Errorf("slab %s: a piece from %d to %d follows one that ends at %d", s.Name, piece.From, piece.To, end)
		}
		end = piece.To
	}
	want := s.Elements
	if p.Update == nil {
		want = 0
	}
	if end != want {
		return fmt.Errorf("slab %s: its pieces cover %d of %d trained elements", s.Name, end, want)
	}
	return p.verifyStates(&s)
}

// afterUpdate checks that a gradient is complete when used, and that changed
// copies go home.
func (p *Plan) afterUpdate(i int) error {
	s := &p.Steps[i]
	slab := p.Slabs[s.Slab]
	piece := slab.Pieces[s.Piece]
	home := map[int]int{} // copy to home
	for region, id := range map[Region]int{InWeight: slab.Weight, InMaster: piece.Master, InMoment: piece.Moment} {
		if b, ok := s.Bound(region, 0); ok && b.Buffer != id {
			home[b.Buffer] = id
		}
	}
	grad, _ := s.Bound(InGrad, 0)
	for j := i + 1; j < len(p.Steps); j++ {
		t := &p.Steps[j]
		p.carryHome(t, home)
		if b, ok := t.Bound(InGrad, 0); ok && t.Verb == Run && b.Buffer == grad.Buffer {
			return fmt.Errorf("step %d adds to the gradient of slab %s after its update in step %d", j, slab.Name, i)
		}
	}
	for id := range home {
		return fmt.Errorf("slab %s: what step %d changed in buffer %d is never moved home", slab.Name, i, id)
	}
	return nil
}

// carryHome follows a changed copy: once it is home it is done; a stop on the way,
// on the host, must go on home.
func (p *Plan) carryHome(t *Step, home map[int]int) {
	to, changed := home[t.Src]
	switch {
	case t.Verb != Move || !changed:
	case t.Dst == to:
		delete(home, t.Src)
	case !p.Buffers[t.Dst].Home && p.TierOf(t.Dst) != OnDevice:
		delete(home, t.Src)
		home[t.Dst] = to
	}
}
