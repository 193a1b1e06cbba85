package planner

import "spillway/plan"

// An iteration ends when all is done that somebody may look at. What is copied to the
// host at its end, for later iterations alone, may still be on its way then: it trails,
// and the next iteration waits for it where it needs the bytes.

// trail marks the steps that trail and fills Past: a step waits for those of the iteration
// before that touch bytes it touches, unless both only read. What follows from another
// wait is left out.
func (o *orderer) carryOver(accesses [][]plan.Access) {
	last := o.markCarriedOver()
	near := o.near(accesses)
	if near == nil {
		return
	}
	o.past = nobody(len(o.p.Instructions) * o.lanes)
	for l := range o.last {
		o.last[l] = -1
	}
	for i, list := range accesses {
		if o.p.Instructions[i].Verb != plan.Free {
			o.follow(i, list, near, last)
		}
	}
}

// mark finds the steps that trail: the last of the lanes to the host, as far as no other
// step of their iteration waits for them. It gives, by lane, the last one.
func (o *orderer) markCarriedOver() (last []int32) {
	last = nobody(o.lanes)
	ended, awaited := make([]bool, o.lanes), make([]bool, len(o.p.Instructions))
	for i := len(o.p.Instructions) - 1; i >= 0; i-- {
		s := &o.p.Instructions[i]
		s.CarriesOver, s.AfterPrevious = false, nil
		if s.Verb == plan.Free {
			continue
		}
		l := s.LaneIndex()
		if s.CarriesOver = !ended[l] && !awaited[i] && o.p.CanCarryOver(s); s.CarriesOver {
			last[l] = max(last[l], int32(i))
			continue
		}
		ended[l] = true
		for _, a := range s.After {
			awaited[a] = true
		}
	}
	return last
}

// trailing is what a step that trails touches.
type carried struct {
	step   int32
	write  bool
	buffer int
}

// near finds, by buffer, what trails in its bytes; nil where nothing trails. Homes share
// theirs with nobody.
func (o *orderer) near(accesses [][]plan.Access) (near [][]carried) {
	moving := make([][]carried, len(o.p.Arenas)) // by arena: what trails in buffers that are no homes
	for i, list := range accesses {
		if !o.p.Instructions[i].CarriesOver {
			continue
		}
		if near == nil {
			near = make([][]carried, len(o.p.Buffers))
		}
		for _, a := range list {
			t, b := carried{int32(i), a.Write, a.Buffer}, &o.p.Buffers[a.Buffer]
			if b.Home {
				near[a.Buffer] = append(near[a.Buffer], t)
			} else {
				moving[b.Arena] = append(moving[b.Arena], t)
			}
		}
	}
	for id := range near {
		b := &o.p.Buffers[id]
		if b.Home {
			continue
		}
		for _, t := range moving[b.Arena] {
			if other := &o.p.Buffers[t.buffer]; b.Offset < other.Offset+other.Bytes && other.Offset < b.Offset+b.Bytes {
				near[id] = append(near[id], t)
			}
		}
	}
	return near
}

// follow finds what of the iteration before is done before a step, and what it must wait
// for. What it waits for in its own iteration knows some of that.
func (o *orderer) follow(i int, accesses []plan.Access, near [][]carried, last []int32) {
	s := &o.p.Instructions[i]
	l, done := s.LaneIndex(), o.pastBefore(i)
	if prev := o.last[l]; prev >= 0 {
		latest(done, o.pastBefore(int(prev)))
	} else if last[l] >= 0 {
		o.learn(done, int(last[l]))
	}
	o.last[l] = int32(i)
	for _, a := range s.After {
		latest(done, o.pastBefore(a))
	}
	o.after = o.after[:0]
	for _, a := range accesses {
		for _, t := range near[a.Buffer] {
			if int(t.step) > i && (a.Write || t.write) {
				o.after = append(o.after, t.step)
			}
		}
	}
	s.AfterPrevious = o.reduce(done, i)
}

// pastBefore is, by lane, the last step of the iteration before that is surely done before
// a step of this one.
func (o *orderer) pastBefore(step int) []int32 { return o.past[step*o.lanes : (step+1)*o.lanes] }
