package planner

import (
	"spillway/plan"
)

// draft is a plan whose buffers have no places yet.
type draft struct {
	*emitter
	spans []span // by buffer
}

func newDraft(e *emitter) *draft {
	d := &draft{e, lives(e.p)}
	e.holdStops(d.spans)
	e.holdLanded(d.spans)
	for a := range e.p.Arenas {
		moving, base := d.moving(a)
		e.p.Arenas[a].Bytes = base + liveMost(moving, len(e.p.Steps))
	}
	return d
}

// steps of the plan, frees left out.
func (d *draft) steps() int { return len(d.p.Steps) }

// least is the plan with arenas as large as what is alive in them at once: no packing
// takes less.
func (d *draft) least() *plan.Plan { return d.p }

// finish packs the arenas and ends lives. The lanes are ordered later, for the
// plans that are forecast.
func (d *draft) finish() *plan.Plan {
	d.packArenas()
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

// packArenas gives buffers their offsets: homes first, then the rest by lifetime.
func (d *draft) packArenas() {
	for a := range d.p.Arenas {
		moving, base := d.moving(a)
		d.p.Arenas[a].Bytes = base + pack(moving, d.b.site.Alignment)
		for id := range d.p.Buffers {
			if b := &d.p.Buffers[id]; b.Arena == a && !b.Home {
				b.Offset = base + d.spans[id].offset
			}
		}
	}
}

// moving lists the lives of an arena's buffers that are no homes; homes get their
// offsets, up to base.
func (d *draft) moving(arena int) (moving []*span, base int64) {
	for id := range d.p.Buffers {
		b := &d.p.Buffers[id]
		switch {
		case b.Arena != arena:
		case b.Home:
			b.Offset = up(base, d.b.site.Alignment)
			base = b.Offset + b.Bytes
		default:
			moving = append(moving, &d.spans[id])
		}
	}
	return moving, up(base, d.b.site.Alignment)
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
