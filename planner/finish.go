package planner

import (
	"sync"

	"spillway/plan"
)

// draft is a plan whose buffers have no places yet.
type draft struct {
	*emitter
	spans    []span    // by buffer
	moving   [][]*span // by arena: of its buffers that are no homes
	base     []int64   // by arena: where its homes end
	outgoing []outgoing
}

func newDraft(e *emitter) *draft {
	d := &draft{emitter: e, spans: lives(e.p)}
	e.holdStops(d.spans)
	e.holdLanded(d.spans)
	d.outgoing = e.findOutgoing(d.spans)
	d.delayReuse(e.c.DelayedReuse)
	d.placeHomes()
	return d
}

// steps of the plan, frees left out.
func (d *draft) steps() int { return len(d.p.Instructions) }

// least is the plan with arenas as large as what is alive in them at once: no packing
// takes less.
func (d *draft) least() *plan.Plan {
	for a, moving := range d.moving {
		d.p.Arenas[a].Bytes = d.base[a] + liveMost(moving, len(d.p.Instructions))
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
	for id, u := range p.Uses() {
		spans[id] = span{bytes: p.Buffers[id].Bytes, from: u.First, to: u.Last}
	}
	return spans
}

// holdStops lets stops on the way to and from the disk live until later ones are
// taken, so that reading does not wait for the memory of what is still written.
func (e *emitter) holdStops(spans []span) {
	for i, id := range e.diskStops {
		if later := i + 2*e.c.PrefetchStates; e.c.PrefetchStates > 0 && later < len(e.diskStops) {
			spans[id].to = max(spans[id].to, spans[e.diskStops[later]].from)
		}
	}
}

// leaving is a buffer of a device that a move carries away: in use up to step last, while
// the device goes on to other work in step until.
type outgoing struct{ buffer, last, until int }

// loosen lets what leaves a device keep its bytes until other work there has begun, or
// ends that again. Else that work could be given the bytes, and wait for the move.
func (d *draft) delayReuse(loose bool) {
	for _, l := range d.outgoing {
		d.spans[l.buffer].to = l.last
	}
	for _, l := range d.outgoing {
		if to := &d.spans[l.buffer].to; loose {
			*to = max(*to, l.until)
		}
	}
}

// findLeaving walks back from the last step.
func (e *emitter) findOutgoing(spans []span) (list []outgoing) {
	next := make([]nextWork, len(e.p.Devices))
	for i := len(e.p.Instructions) - 1; i >= 0; i-- {
		s := &e.p.Instructions[i]
		if s.Verb == plan.Run || s.Verb == plan.Update {
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
			list = append(list, outgoing{s.Src, spans[s.Src].to, until})
		}
	}
	return list
}

// nextWork is what a device does behind a step: its next run; the first step of the work
// on a block, and of that on another behind it.
type nextWork struct{ run, block, first, behind int }

func (n *nextWork) meet(s *plan.Instruction, at int) {
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
func (n *nextWork) after(move *plan.Instruction) int {
	switch {
	case move.MicroBatch >= 0:
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
		b.Offset = alignUp(d.base[b.Arena], d.b.site.Alignment)
		d.base[b.Arena] = b.Offset + b.Bytes
	}
	for a := range d.base {
		d.base[a] = alignUp(d.base[a], d.b.site.Alignment)
	}
}

// endLives puts a free behind the last step that touches each buffer that is no
// home.
func (e *emitter) endLives(spans []span) {
	ends := make([][]int, len(e.p.Instructions))
	for id, s := range spans {
		if s.to >= 0 && !e.p.Buffers[id].Home {
			ends[s.to] = append(ends[s.to], id)
		}
	}
	steps := make([]plan.Instruction, 0, len(e.p.Instructions)+len(e.p.Buffers))
	for i, s := range e.p.Instructions {
		steps = append(steps, s)
		for _, id := range ends[i] {
			steps = append(steps, plan.Instruction{Verb: plan.Free, Block: s.Block, MicroBatch: s.MicroBatch, Dst: id})
		}
	}
	e.p.Instructions = steps
}
