package planner

import (
	"slices"
	"sort"

	"spillway/plan"
)

// segment is a range of an arena with the steps that touched it last.
type segment struct {
	lo, hi int64
	writer int   // the step, -1 for none
	reader []int // by lane: the last reading step since, -1 for none
}

// laneOf numbers the lanes of all devices.
func laneOf(s *plan.Step) int {
	for i, l := range plan.Lanes {
		if s.Lane == l {
			return s.Device*len(plan.Lanes) + i
		}
	}
	return 0
}

// nobody is a step of each lane that does not exist.
func nobody(lanes int) []int {
	list := make([]int, lanes)
	for i := range list {
		list[i] = -1
	}
	return list
}

// touches remembers who touched which bytes of an arena: segments, sorted and
// apart.
type touches struct {
	lanes int
	list  []segment
}

// meet records that a step touches bytes and returns the steps it must follow.
func (t *touches) meet(step, l int, lo, hi int64, write bool) (after []int) {
	if lo >= hi {
		return nil
	}
	from, to := t.cut(lo, hi)
	for i := from; i < to; i++ {
		s := &t.list[i]
		if s.writer >= 0 {
			after = append(after, s.writer)
		}
		if write {
			for _, r := range s.reader {
				if r >= 0 {
					after = append(after, r)
				}
			}
		} else {
			s.reader[l] = step
		}
	}
	if write {
		t.list = append(t.list[:from], append([]segment{{lo, hi, step, nobody(t.lanes)}}, t.list[to:]...)...)
	}
	return after
}

// cut splits segments so that [lo, hi) is covered by whole ones, fills gaps with
// untouched segments, and returns their range.
func (t *touches) cut(lo, hi int64) (from, to int) {
	t.split(lo)
	t.split(hi)
	from = sort.Search(len(t.list), func(i int) bool { return t.list[i].lo >= lo })
	var out []segment
	at, i := lo, from
	for ; i < len(t.list) && t.list[i].lo < hi; i++ {
		if t.list[i].lo > at {
			out = append(out, segment{at, t.list[i].lo, -1, nobody(t.lanes)})
		}
		out = append(out, t.list[i])
		at = t.list[i].hi
	}
	if at < hi {
		out = append(out, segment{at, hi, -1, nobody(t.lanes)})
	}
	if len(out) != i-from {
		t.list = append(t.list[:from:from], append(out, t.list[i:]...)...)
	}
	return from, from + len(out)
}

func (t *touches) split(at int64) {
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].hi > at })
	if i == len(t.list) || t.list[i].lo >= at {
		return
	}
	s := t.list[i]
	left, right := s, s
	left.hi, right.lo = at, at
	right.reader = slices.Clone(s.reader)
	t.list = append(t.list[:i:i], append([]segment{left, right}, t.list[i+1:]...)...)
}

// order fills After: a step waits for the last steps of other lanes that touched
// bytes it touches, unless both only read. What follows from an earlier wait is
// left out.
func order(p *plan.Plan) {
	lanes := len(p.Devices) * len(plan.Lanes)
	touched := make([]touches, len(p.Arenas))
	for i := range touched {
		touched[i].lanes = lanes
	}
	known := make([][]int, len(p.Steps)) // by step: the last step of each lane that is surely done before it
	last := nobody(lanes)
	for i, accesses := range p.Accesses() {
		s := &p.Steps[i]
		if s.Verb == plan.Free {
			continue
		}
		l := laneOf(s)
		done := nobody(lanes)
		if prev := last[l]; prev >= 0 {
			copy(done, known[prev])
			done[l] = prev
		}
		var conflicts []int
		for _, a := range accesses {
			b := p.Buffers[a.Buffer]
			conflicts = append(conflicts, touched[b.Arena].meet(i, l, b.Offset, b.Offset+b.Bytes, a.Write)...)
		}
		sort.Sort(sort.Reverse(sort.IntSlice(conflicts)))
		for _, c := range conflicts {
			cl := laneOf(&p.Steps[c])
			if c == i || done[cl] >= c {
				continue
			}
			s.After = append(s.After, c)
			for l, at := range known[c] {
				done[l] = max(done[l], at)
			}
			done[cl] = c
		}
		known[i], last[l] = done, i
	}
}
