package planner

import (
	"spillway/plan"
)

// finish packs the arenas and ends lives. The lanes are ordered later, for the
// plans that are forecast.
func (e *emitter) finish() *plan.Plan {
	spans := lives(e.p)
	e.holdStops(spans)
	e.packArenas(spans)
	e.endLives(spans)
	return e.p
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
func (e *emitter) packArenas(spans []span) {
	for a := range e.p.Arenas {
		var base int64
		var moving []*span
		for id := range e.p.Buffers {
			b := &e.p.Buffers[id]
			switch {
			case b.Arena != a:
			case b.Home:
				b.Offset = up(base, e.b.site.Alignment)
				base = b.Offset + b.Bytes
			default:
				moving = append(moving, &spans[id])
			}
		}
		base = up(base, e.b.site.Alignment)
		e.p.Arenas[a].Bytes = base + pack(moving, e.b.site.Alignment)
		for id := range e.p.Buffers {
			if b := &e.p.Buffers[id]; b.Arena == a && !b.Home {
				b.Offset = base + spans[id].offset
			}
		}
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
