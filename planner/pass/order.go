package pass

import (
	"slices"

	"spillway/internal/tenancy"
	"spillway/plan"
)

// Order fills After: an instruction waits for the last instructions of other lanes that
// touched bytes it touches, unless both only read. A wait that follows from another one is
// left out. Then carryOver finds what the end of an iteration need not wait for.
//
// An instruction touches whole buffers. So it is enough to know, by buffer, who touched it
// last, and when a buffer that is no home comes alive, which ones had its bytes before.
func Order(p *plan.Plan) { order(p, p.Accesses()) }

func order(p *plan.Plan, accesses [][]plan.Access) {
	o := &orderer{p: p, lanes: len(p.Devices) * len(plan.Lanes)}
	o.touched = touched{o.lanes, make([]bool, len(p.Buffers)), nobody(len(p.Buffers)), nobody(len(p.Buffers) * o.lanes)}
	o.known = nobody(len(p.Instructions) * o.lanes)
	o.last = nobody(o.lanes)
	o.tenants = make([]tenancy.Map, len(p.Arenas))
	o.waits = make([]int, 0, 2*len(p.Instructions))
	for i, list := range accesses {
		if p.Instructions[i].Verb != plan.Free {
			o.order(i, list)
		}
	}
	o.carryOver(accesses)
}

// orderer walks over the instructions of a plan, which are numbers here, -1 for none. What
// is done before an instruction is known by lane: the last instruction of each lane that
// has surely ended.
type orderer struct {
	p        *plan.Plan
	lanes    int
	touched  touched
	tenants  []tenancy.Map // by arena: who has which bytes
	known    []int32       // by instruction and lane: what is done before it
	last     []int32       // by lane: its last instruction so far
	after    []int32       // scratch: what the instruction at hand must follow
	waits    []int         // memory for the lists that go into the plan
	previous []int32       // as known, of the previous iteration: see carryOver
}

// order finds what an instruction must wait for.
func (o *orderer) order(i int, accesses []plan.Access) {
	s := &o.p.Instructions[i]
	l := s.LaneIndex()
	done := o.doneBefore(i)
	if prev := o.last[l]; prev >= 0 {
		copy(done, o.doneBefore(int(prev)))
		done[l] = prev
	}
	o.last[l] = int32(i)
	o.after = o.after[:0]
	for _, a := range accesses {
		o.meet(i, l, a)
	}
	s.After = o.reduce(done, i)
}

// reduce gives those of o.after that instruction i must really wait for: the others are
// done before it anyway. It updates what is done.
func (o *orderer) reduce(done []int32, i int) []int {
	slices.SortFunc(o.after, func(a, b int32) int { return int(b - a) })
	from := len(o.waits)
	for _, c := range o.after {
		cl := o.p.Instructions[c].LaneIndex()
		if int(c) == i || done[cl] >= c {
			continue
		}
		o.waits = append(o.waits, int(c))
		o.learn(done, int(c))
	}
	if to := len(o.waits); to > from {
		return o.waits[from:to:to]
	}
	return nil
}

// learn notes that an instruction is done, and all that is done before it.
func (o *orderer) learn(done []int32, i int) {
	raise(done, o.doneBefore(i))
	l := o.p.Instructions[i].LaneIndex()
	done[l] = max(done[l], int32(i))
}

// raise lifts entries to those of another list.
func raise(list, to []int32) {
	for i, at := range to {
		list[i] = max(list[i], at)
	}
}

func (o *orderer) doneBefore(i int) []int32 { return o.known[i*o.lanes : (i+1)*o.lanes] }

// meet notes that an instruction touches a buffer, and which ones it must therefore follow.
func (o *orderer) meet(i, lane int, a plan.Access) {
	b := &o.p.Buffers[a.Buffer]
	if b.Bytes == 0 {
		return
	}
	if !b.Home && !o.touched.alive[a.Buffer] {
		o.touched.alive[a.Buffer] = true
		for _, before := range o.tenants[b.Arena].Take(a.Buffer, b.Offset, b.Offset+b.Bytes) {
			o.after = o.touched.all(o.after, int(before))
		}
	}
	if !a.Write {
		o.after = o.touched.writer(o.after, a.Buffer)
		o.touched.readers(a.Buffer)[lane] = int32(i)
		return
	}
	o.after = o.touched.all(o.after, a.Buffer)
	o.touched.write[a.Buffer] = int32(i)
	readers := o.touched.readers(a.Buffer)
	for l := range readers {
		readers[l] = -1
	}
}

// touched is who touched each buffer last.
type touched struct {
	lanes int
	alive []bool
	write []int32 // by buffer: the last instruction that wrote it
	read  []int32 // by buffer and lane: the last instruction that read it since
}

func (t *touched) readers(buffer int) []int32 {
	return t.read[buffer*t.lanes : (buffer+1)*t.lanes]
}

func (t *touched) writer(list []int32, buffer int) []int32 {
	if w := t.write[buffer]; w >= 0 {
		list = append(list, w)
	}
	return list
}

// all appends the last writer of a buffer and who read it since.
func (t *touched) all(list []int32, buffer int) []int32 {
	list = t.writer(list, buffer)
	for _, r := range t.readers(buffer) {
		if r >= 0 {
			list = append(list, r)
		}
	}
	return list
}

func nobody(n int) []int32 { return slices.Repeat([]int32{-1}, n) }
