package plan

import (
	"fmt"

	"spillway/internal/tenancy"
)

// P6: what is ordered before what.

// verifyOrder keeps, for every instruction, the last one of each lane that is surely done
// before it starts, and compares every access with earlier ones to the same bytes: to the
// same buffer, and when its life begins, to the buffers that had its bytes before. Homes
// share their bytes with nobody (P2).
func verifyOrder(p *Plan) error { return newOrderCheck(p, 1).walk(p.Accesses()) }

func newOrderCheck(p *Plan, rounds int) *orderCheck {
	o := &orderCheck{p: p, lanes: len(p.Devices) * len(Lanes), tenants: make([]tenancy.Map, len(p.Arenas)), history: make([]history, len(p.Buffers))}
	o.done = make([]int32, rounds*len(p.Instructions)*o.lanes)
	o.last, o.ended = make([]int32, o.lanes), make([]int32, o.lanes)
	return o
}

// walk checks the instructions of an iteration.
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

// nextIteration begins another one: all that does not carry over is done, and buffers that
// are not homes have new lives.
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

// orderCheck numbers instructions from 1 on, those of a second iteration after those of
// the first; 0 is none.
type orderCheck struct {
	p       *Plan
	lanes   int
	base    int32   // instructions of earlier iterations
	done    []int32 // by instruction and lane: the last one that is surely done before it
	last    []int32 // by lane: its last instruction so far
	ended   []int32 // by lane: the last one that was done before the iteration began
	tenants []tenancy.Map
	history []history // by buffer
}

// history is the accesses to a buffer that later ones may conflict with.
type history struct {
	began   bool
	writer  int32
	readers []int32 // since then, the last of each lane
}

// number of an instruction of this iteration.
func (o *orderCheck) number(i int) int32 { return o.base + int32(i) + 1 }

// index of an instruction in the plan.
func (o *orderCheck) index(n int32) int { return int(n-1) % len(o.p.Instructions) }

func (o *orderCheck) before(n int32) []int32 {
	return o.done[int(n-1)*o.lanes : int(n)*o.lanes]
}

// learn finds what is done before an instruction: the previous one of its lane, those it
// waits for, and all that was done before them.
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

// add says that an instruction is done, and what was done before it.
func (o *orderCheck) add(known []int32, n int32) {
	if n == 0 {
		return
	}
	for l, at := range o.before(n) {
		known[l] = max(known[l], at)
	}
	l := o.laneOf(n)
	known[l] = max(known[l], n)
}

func (o *orderCheck) laneOf(n int32) int { return o.p.Instructions[o.index(n)].LaneIndex() }

func (o *orderCheck) check(i int, a Access) error {
	b, h, now := &o.p.Buffers[a.Buffer], &o.history[a.Buffer], o.number(i)
	if !h.began {
		h.began = true
		if !b.Home {
			for _, before := range o.tenants[b.Arena].Take(a.Buffer, b.Offset, b.Offset+b.Bytes) {
				if err := o.follows(now, &o.history[before], true); err != nil {
					return err
				}
			}
		}
	}
	if err := o.follows(now, h, a.Write); err != nil {
		return err
	}
	if a.Write {
		h.writer, h.readers = now, h.readers[:0]
		return nil
	}
	for r, n := range h.readers {
		if o.laneOf(n) == o.laneOf(now) {
			h.readers[r] = now
			return nil
		}
	}
	h.readers = append(h.readers, now)
	return nil
}

// follows checks that an instruction is ordered after who wrote, and where it writes
// itself, after who read.
func (o *orderCheck) follows(now int32, h *history, write bool) error {
	known := o.before(now)
	ordered := func(n int32) error {
		if n == 0 || n == now || known[o.laneOf(n)] >= n {
			return nil
		}
		i, j, next := o.index(n), o.index(now), ""
		if n <= o.base {
			next = " of the next iteration"
		}
		return fmt.Errorf("instructions %d (%s) and %d (%s)%s touch the same bytes in no order", i, o.p.Instructions[i].Verb, j, o.p.Instructions[j].Verb, next)
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
