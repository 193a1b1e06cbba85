package planner

import "spillway/plan"

// An iteration ends when all is done that somebody may look at. What is copied to the
// host at its end, for later iterations alone, may still be on its way then: it trails,
// and the next iteration waits for it where it needs the bytes.

// trail marks the steps that trail and fills Past: a step waits for those of the iteration
// before that touch bytes it touches, unless both only read. What follows from another
// wait is left out.
func (o *orderer) trail(accesses [][]plan.Access) {
	last := o.mark()
	near := o.near(accesses)
	if near == nil {
		return
	}
	o.past = nobody(len(o.p.Steps) * o.lanes)
	for l := range o.last {
		o.last[l] = -1
	}
	for i, list := range accesses {
		if o.p.Steps[i].Verb != plan.Free {
			o.follow(i, list, near, last)
		}
	}
}

// mark finds the steps that trail: the last of the lanes to the host, as far as no other
// step of their iteration waits for them. It gives, by lane, the last one.
func (o *orderer) mark() (last []int32) {
	last = nobody(o.lanes)
	ended, awaited := make([]bool, o.lanes), make([]bool, len(o.p.Steps))
	for i := len(o.p.Steps) - 1; i >= 0; i-- {
		s := &o.p.Steps[i]
		s.Trails, s.Past = false, nil
		if s.Verb == plan.Free {
			continue
		}
		l := s.LaneNumber()
		if s.Trails = !ended[l] && !awaited[i] && o.p.CanTrail(s); s.Trails {
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
type trailing struct {
	step   int32
	write  bool
	buffer int
}

// near finds, by buffer, what trails in its bytes; nil where nothing trails.
func (o *orderer) near(accesses [][]plan.Access) [][]trailing {
	byArena, any := make([][]trailing, len(o.p.Arenas)), false
	for i, list := range accesses {
		if !o.p.Steps[i].Trails {
			continue
		}
		for _, a := range list {
			arena := o.p.Buffers[a.Buffer].Arena
			byArena[arena], any = append(byArena[arena], trailing{int32(i), a.Write, a.Buffer}), true
		}
	}
	if !any {
		return nil
	}
	near := make([][]trailing, len(o.p.Buffers))
	for id, b := range o.p.Buffers {
		for _, t := range byArena[b.Arena] {
			if other := o.p.Buffers[t.buffer]; b.Offset < other.Offset+other.Bytes && other.Offset < b.Offset+b.Bytes {
				near[id] = append(near[id], t)
			}
		}
	}
	return near
}

// follow finds what of the iteration before is done before a step, and what it must wait
// for. What it waits for in its own iteration knows some of that.
func (o *orderer) follow(i int, accesses []plan.Access, near [][]trailing, last []int32) {
	s := &o.p.Steps[i]
	l, done := s.LaneNumber(), o.pastBefore(i)
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
	s.Past = o.reduce(done, i)
}

// pastBefore is, by lane, the last step of the iteration before that is surely done before
// a step of this one.
func (o *orderer) pastBefore(step int) []int32 { return o.past[step*o.lanes : (step+1)*o.lanes] }
