package planner

import (
	"spillway/plan"
)

// finish ends lives, packs the arenas and orders the lanes.
func (e *emitter) finish() (*plan.Plan, error) {
	e.endLives()
	e.packArenas()
	order(e.p)
	return e.p, nil
}

// endLives puts a free behind the last step that touches each buffer that is no
// home.
func (e *emitter) endLives() {
	last := make([]int, len(e.p.Buffers))
	for i := range last {
		last[i] = -1
	}
	for i := range e.p.Steps {
		for _, a := range e.p.Accesses(&e.p.Steps[i]) {
			last[a.Buffer] = i
		}
	}
	ends := make([][]int, len(e.p.Steps))
	for id, i := range last {
		if i >= 0 && !e.p.Buffers[id].Home {
			ends[i] = append(ends[i], id)
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

// packArenas gives buffers their offsets: homes first, then the rest by lifetime.
func (e *emitter) packArenas() {
	spans := e.lives()
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

// lives finds from which step to which each buffer is alive.
func (e *emitter) lives() []span {
	spans := make([]span, len(e.p.Buffers))
	for id, b := range e.p.Buffers {
		spans[id] = span{bytes: b.Bytes, from: -1}
	}
	for i := range e.p.Steps {
		for _, a := range e.p.Accesses(&e.p.Steps[i]) {
			s := &spans[a.Buffer]
			if s.from < 0 {
				s.from = i
			}
			s.to = i
		}
	}
	return spans
}
