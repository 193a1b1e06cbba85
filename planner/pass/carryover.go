package pass

import "spillway/plan"

// An iteration ends when all is done that somebody may look at. What is copied to the host
// at its end, for later iterations alone, may still be on its way then: it carries over,
// and the next iteration waits for it where it needs the bytes.

// carryOver marks the instructions that carry over and fills AfterPrevious: an instruction
// waits for those of the previous iteration that touch bytes it touches, unless both only
// read. A wait that follows from another one is left out.
func (o *orderer) carryOver(accesses [][]plan.Access) {
	last := o.markCarried()
	sharing := o.sharing(accesses)
	if sharing == nil {
		return
	}
	o.previous = nobody(len(o.p.Instructions) * o.lanes)
	for l := range o.last {
		o.last[l] = -1
	}
	for i, list := range accesses {
		if o.p.Instructions[i].Verb != plan.Free {
			o.afterPrevious(i, list, sharing, last)
		}
	}
}

// markCarried marks the instructions that carry over: the last of the lanes to the host, as
// far as nothing of their own iteration waits for them. It returns, by lane, the last one.
func (o *orderer) markCarried() (last []int32) {
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

// carried is an access of an instruction that carries over.
type carried struct {
	instruction int32
	write       bool
	buffer      int
}

// sharing finds, by buffer, what carries over in its bytes; nil where nothing carries over.
// Homes share their bytes with no other buffer.
func (o *orderer) sharing(accesses [][]plan.Access) (sharing [][]carried) {
	moving := make([][]carried, len(o.p.Arenas)) // by arena: in buffers that are no homes
	for i, list := range accesses {
		if !o.p.Instructions[i].CarriesOver {
			continue
		}
		if sharing == nil {
			sharing = make([][]carried, len(o.p.Buffers))
		}
		for _, a := range list {
			c, b := carried{int32(i), a.Write, a.Buffer}, &o.p.Buffers[a.Buffer]
			if b.Home {
				sharing[a.Buffer] = append(sharing[a.Buffer], c)
			} else {
				moving[b.Arena] = append(moving[b.Arena], c)
			}
		}
	}
	for id := range sharing {
		b := &o.p.Buffers[id]
		if b.Home {
			continue
		}
		for _, c := range moving[b.Arena] {
			if other := &o.p.Buffers[c.buffer]; b.Offset < other.Offset+other.Bytes && other.Offset < b.Offset+b.Bytes {
				sharing[id] = append(sharing[id], c)
			}
		}
	}
	return sharing
}

// afterPrevious finds what of the previous iteration an instruction must wait for. What it
// waits for in its own iteration has waited for some of that already.
func (o *orderer) afterPrevious(i int, accesses []plan.Access, sharing [][]carried, last []int32) {
	s := &o.p.Instructions[i]
	l, done := s.LaneIndex(), o.previousBefore(i)
	if prev := o.last[l]; prev >= 0 {
		raise(done, o.previousBefore(int(prev)))
	} else if last[l] >= 0 {
		o.learn(done, int(last[l]))
	}
	o.last[l] = int32(i)
	for _, a := range s.After {
		raise(done, o.previousBefore(a))
	}
	o.after = o.after[:0]
	for _, a := range accesses {
		for _, c := range sharing[a.Buffer] {
			if int(c.instruction) > i && (a.Write || c.write) {
				o.after = append(o.after, c.instruction)
			}
		}
	}
	s.AfterPrevious = o.reduce(done, i)
}

// previousBefore is, by lane, the last instruction of the previous iteration that is surely
// done before an instruction of this one.
func (o *orderer) previousBefore(i int) []int32 { return o.previous[i*o.lanes : (i+1)*o.lanes] }
