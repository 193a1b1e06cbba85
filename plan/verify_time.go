package plan

import (
	"fmt"

	"spillway/internal/tenancy"
)

// The rules about time: what is alive when, and what is ordered before what.

func verifyLives(p *Plan) error {
	lives := make([]lifeState, len(p.Buffers))
	held := make([]tenancy.Map, len(p.Arenas))
	accesses := p.Accesses()
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if s.Verb == Free {
			if p.Buffers[s.Dst].Home || lives[s.Dst] != alive {
				return fmt.Errorf("step %d: buffer %s is freed but is a home or not alive", i, p.Buffers[s.Dst].Name)
			}
			lives[s.Dst] = freed
			continue
		}
		for _, a := range accesses[i] {
			if err := p.live(a, lives, held); err != nil {
				return fmt.Errorf("step %d, %s: %w", i, s.Verb, err)
			}
		}
	}
	for id, l := range lives {
		if l == alive {
			return fmt.Errorf("buffer %s is never freed", p.Buffers[id].Name)
		}
	}
	return nil
}

// life of a buffer that is no home.
type lifeState byte

const (
	unborn lifeState = iota
	alive
	freed
)

// live begins the life of a buffer that a step touches first.
func (p *Plan) live(a Access, lives []lifeState, held []tenancy.Map) error {
	b := &p.Buffers[a.Buffer]
	switch {
	case b.Home || lives[a.Buffer] == alive:
		return nil
	case lives[a.Buffer] == freed:
		return fmt.Errorf("buffer %s is used after its free", b.Name)
	case a.Read:
		return fmt.Errorf("buffer %s is read before it is written", b.Name)
	}
	lives[a.Buffer] = alive
	for _, o := range held[b.Arena].Take(a.Buffer, b.Offset, b.Offset+b.Bytes) {
		if lives[o] == alive {
			return fmt.Errorf("buffers %s and %s are alive in the same bytes", p.Buffers[o].Name, b.Name)
		}
	}
	return nil
}

// verifyOrder keeps, for every step, the last step of each lane that is surely
// done before it starts, and looks every access up against the earlier ones to
// the same bytes: those to the same buffer, and when its life begins, those to the
// buffers that had its bytes before. Homes share their bytes with nobody (P2).
func verifyOrder(p *Plan) error { return newOrderCheck(p, 1).walk(p.Accesses()) }

func newOrderCheck(p *Plan, rounds int) *orderCheck {
	o := &orderCheck{p: p, lanes: len(p.Devices) * len(Lanes), tenants: make([]tenancy.Map, len(p.Arenas)), history: make([]history, len(p.Buffers))}
	o.done = make([]int32, rounds*len(p.Instructions)*o.lanes)
	o.last, o.ended = make([]int32, o.lanes), make([]int32, o.lanes)
	return o
}

// walk checks the steps of an iteration.
func (o *orderCheck) walk(accesses [][]Access) error {
	for i, list := range accesses {
		if o.p.Instructions[i].Verb == Free {
			continue
		}
		o.learn(i)
		for _, a := range list {
			if err := o.check(i, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// again begins the iteration behind one: what does not trail is done, and buffers that
// are no homes have new lives.
func (o *orderCheck) nextIteration() {
	for i := range o.p.Instructions {
		if s := &o.p.Instructions[i]; s.Verb != Free && !s.CarriesOver {
			o.add(o.ended, o.number(i))
		}
	}
	o.base += int32(len(o.p.Instructions))
	for id := range o.history {
		o.history[id].began = o.p.Buffers[id].Home
	}
}

// orderCheck numbers steps from 1 on, those of a second iteration behind those of the
// first; 0 is none.
type orderCheck struct {
	p       *Plan
	lanes   int
	base    int32   // steps of iterations before
	done    []int32 // by step and lane: the last step that is surely done before it
	last    []int32 // by lane: its last step so far
	ended   []int32 // by lane: the last step that was done before the iteration began
	tenants []tenancy.Map
	history []history // by buffer
}

// past are the accesses to a buffer that later ones may conflict with.
type history struct {
	began   bool
	writer  int32
	readers []int32 // since: the last of each lane that has one
}

// number of a step of this iteration.
func (o *orderCheck) number(i int) int32 { return o.base + int32(i) + 1 }

// index of a step in the plan.
func (o *orderCheck) index(step int32) int { return int(step-1) % len(o.p.Instructions) }

func (o *orderCheck) before(step int32) []int32 {
	return o.done[int(step-1)*o.lanes : int(step)*o.lanes]
}

// learn finds what is done before a step: what the one before it in its lane and
// those it waits for know, and they themselves.
func (o *orderCheck) learn(i int) {
	s := &o.p.Instructions[i]
	known, lane := o.before(o.number(i)), s.LaneIndex()
	copy(known, o.ended)
	o.add(known, o.last[lane])
	for _, a := range s.After {
		o.add(known, o.number(a))
	}
	if o.base > 0 {
		for _, a := range s.AfterPrevious {
			o.add(known, o.number(a)-int32(len(o.p.Instructions)))
		}
	}
	o.last[lane] = o.number(i)
}

// add says that a step is done, and what is done before it.
func (o *orderCheck) add(known []int32, step int32) {
	if step == 0 {
		return
	}
	for l, at := range o.before(step) {
		known[l] = max(known[l], at)
	}
	l := o.laneOf(step)
	known[l] = max(known[l], step)
}

func (o *orderCheck) laneOf(step int32) int { return o.p.Instructions[o.index(step)].LaneIndex() }

func (o *orderCheck) check(i int, a Access) error {
	b, h, now := &o.p.Buffers[a.Buffer], &o.history[a.Buffer], o.number(i)
	if !h.began {
		h.began = true
		if !b.Home {
			for _, before := range o.tenants[b.Arena].Take(a.Buffer, b.Offset, b.Offset+b.Bytes) {
				if err := o.sameLine(now, &o.history[before], true); err != nil {
					return err
				}
			}
		}
	}
	if err := o.sameLine(now, h, a.Write); err != nil {
		return err
	}
	if a.Write {
		h.writer, h.readers = now, h.readers[:0]
		return nil
	}
	for r, step := range h.readers {
		if o.laneOf(step) == o.laneOf(now) {
			h.readers[r] = now
			return nil
		}
	}
	h.readers = append(h.readers, now)
	return nil
}

// follows checks that a step is ordered behind who wrote, and where it writes itself
// behind who read.
func (o *orderCheck) sameLine(now int32, h *history, write bool) error {
	known := o.before(now)
	ordered := func(step int32) error {
		if step == 0 || step == now || known[o.laneOf(step)] >= step {
			return nil
		}
		i, j, next := o.index(step), o.index(now), ""
		if step <= o.base {
			next = " of the next iteration"
		}
		return fmt.Errorf("steps %d (%s) and %d (%s)%s touch the same bytes in no order", i, o.p.Instructions[i].Verb, j, o.p.Instructions[j].Verb, next)
	}
	if err := ordered(h.writer); err != nil || !write {
		return err
	}
	for _, r := range h.readers {
		if err := ordered(r); err != nil {
			return err
		}
	}
	return nil
}
