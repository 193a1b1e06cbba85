package planner

import (
	"sync"

	"spillway/plan"
)

// draft is a plan whose buffers have no places yet.
type draft struct {
	*emitter
	spans   []span    // by buffer
	moving  [][]*span // by arena: of its buffers that are no homes
	base    []int64   // by arena: where its homes end
	leaving []leaving
}

func newDraft(e *emitter) *draft {
	d := &draft{emitter: e, spans: lives(e.p)}
	e.holdStops(d.spans)
	e.holdLanded(d.spans)
	d.leaving = e.findLeaving(d.spans)
	d.loosen(e.c.Loose)
	d.placeHomes()
	return d
}

// steps of the plan, frees left out.
func (d *draft) steps() int { return len(d.p.Steps) }

// least is the plan with arenas as large as what is alive in them at once: no packing
// takes less.
func (d *draft) least() *plan.Plan {
	for a, moving := range d.moving {
		d.p.Arenas[a].Bytes = d.base[a] + liveMost(moving, len(d.p.Steps))
	}
	return d.p
}

// finish ends lives once buffers have places. The lanes are ordered later, for the
// plans that are forecast.
func (d *draft) finish() *plan.Plan {
	d.endLives(d.spans)
	return d.p
}

// lives finds from which step to which each buffer is alive.
func lives(p *plan.Plan) []span {
	spans := make([]span, len(p.Buffers))
	for id, b := range p.Buffers {
		spans[id] = span{bytes: b.Bytes, from: -1, to: -1}
	}
	for i, accesses := range p.Accesses() {
		for _, a := range accesses {
			s := &spans[a.Buffer]
			if s.from < 0 {
				s.from = i
			}
			s.to = i
		}
	}
	return spans
}

// holdStops lets stops on the way to and from the disk live until later ones are
// taken, so that reading does not wait for the memory of what is still written.
func (e *emitter) holdStops(spans []span) {
	for i, id := range e.stops {
		if later := i + 2*e.c.Ahead; e.c.Ahead > 0 && later < len(e.stops) {
			spans[id].to = max(spans[id].to, spans[e.stops[later]].from)
		}
	}
}

// leaving is a buffer of a device that a move carries away: in use up to step last, while
// the device goes on to other work in step until.
type leaving struct{ buffer, last, until int }

// loosen lets what leaves a device keep its bytes until other work there has begun, or
// ends that again. Else that work could be given the bytes, and wait for the move.
func (d *draft) loosen(loose bool) {
	for _, l := range d.leaving {
		d.spans[l.buffer].to = l.last
	}
	for _, l := range d.leaving {
		if to := &d.spans[l.buffer].to; loose {
			*to = max(*to, l.until)
		}
	}
}

// findLeaving walks back from the last step.
func (e *emitter) findLeaving(spans []span) (list []leaving) {
	next := make([]nextWork, len(e.p.Devices))
	for i := len(e.p.Steps) - 1; i >= 0; i-- {
		s := &e.p.Steps[i]
		if s.Verb == plan.Run || s.Verb == plan.UpdateRun {
			next[s.Device].meet(s, i)
		}
		if s.Verb != plan.Move {
			continue
		}
		b := &e.p.Buffers[s.Src]
		if b.Home || b.Arena >= e.host || b.Class == plan.ResultData {
			continue
		}
		if until := next[b.Arena].after(s); until > spans[s.Src].to {
			list = append(list, leaving{s.Src, spans[s.Src].to, until})
		}
	}
	return list
}

// nextWork is what a device does behind a step: its next run; the first step of the work
// on a block, and of that on another behind it.
type nextWork struct{ run, block, first, behind int }

func (n *nextWork) meet(s *plan.Step, at int) {
	if s.Verb == plan.Run {
		n.run = at
	}
	if s.Block != n.block {
		n.block, n.behind = s.Block, n.first
	}
	n.first = at
}

// after is the step in which other work begins: on another block, or where a move is about
// a micro-batch, the next one's.
func (n *nextWork) after(move *plan.Step) int {
	switch {
	case move.Micro >= 0:
		return n.run
	case move.Block == n.block:
		return n.behind
	}
	return n.first
}

// packed is the plan with a place for every buffer: those that are no homes by lifetime,
// all arenas at once, each by itself.
func (d *draft) packed() *plan.Plan {
	var all sync.WaitGroup
	for a, moving := range d.moving {
		all.Go(func() { d.p.Arenas[a].Bytes = d.base[a] + pack(moving, d.b.site.Alignment) })
	}
	all.Wait()
	for id := range d.p.Buffers {
		if b := &d.p.Buffers[id]; !b.Home {
			b.Offset = d.base[b.Arena] + d.spans[id].offset
		}
	}
	return d.p
}

// placeHomes gives homes their offsets, behind each other, and finds the lives of the
// other buffers of each arena.
func (d *draft) placeHomes() {
	d.moving, d.base = make([][]*span, len(d.p.Arenas)), make([]int64, len(d.p.Arenas))
	for id := range d.p.Buffers {
		b := &d.p.Buffers[id]
		if !b.Home {
			d.moving[b.Arena] = append(d.moving[b.Arena], &d.spans[id])
			continue
		}
		b.Offset = up(d.base[b.Arena], d.b.site.Alignment)
		d.base[b.Arena] = b.Offset + b.Bytes
	}
	for a := range d.base {
		d.base[a] = up(d.base[a], d.b.site.Alignment)
	}
}

// endLives puts a free behind the last step that touches each buffer that is no
// home.
func (e *emitter) endLives(spans []span) {
	ends := make([][]int, len(e.p.Steps))
	for id, s := range spans {
		if s.to >= 0 && !e.p.Buffers[id].Home {
			ends[s.to] = append(ends[s.to], id)
		}
	}
	steps := make([]plan.Step, 0, len(e.p.Steps)+len(e.p.Buffers))
	for i, s := range e.p.Steps {
		steps = append(steps, s)
		for _, id := range ends[i] {
			steps = append(steps, plan.Step{Verb: plan.Free, Block: s.Block, Micro: s.Micro, Dst: id})
		}
	}
	e.p.Steps = steps
}
