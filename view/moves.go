package view

import (
	"spillway/plan"
	"spillway/trace"
)

// Motion is what happens to the cells of a map during one step.
type Motion struct {
	Step    int64   `json:"step"` // that was measured; 0: these are times of the forecast
	Seconds float64 `json:"seconds"`
	Moves   []Glow  `json:"moves"`
}

// Glow is a cell of a map that something happens to for a while.
type Glow struct {
	Row    int      `json:"row"`
	Column int      `json:"column"`
	Kind   GlowKind `json:"kind"`
	Start  int64    `json:"start"` // nanoseconds from the start of the step
	End    int64    `json:"end"`
	Bytes  int64    `json:"bytes,omitempty"`
}

// GlowKind is what happens to a cell.
type GlowKind string

// The kinds.
const (
	ComesIn GlowKind = "in"     // it is copied to a device
	GoesOut GlowKind = "out"    // it is copied back
	InUse   GlowKind = "run"    // a block computes with it
	Updated GlowKind = "update" // the optimizer works on it
)

// MotionOf is what the cells of a plan's map do while a step runs, by the times of its
// instructions.
func MotionOf(p *plan.Plan, m Map, t Timeline) Motion {
	mo := Motion{Step: t.Step, Seconds: t.MeasuredSeconds, Moves: []Glow{}}
	if t.Step == 0 {
		mo.Seconds = t.ForecastSeconds
	}
	cells := cellsOf(p, m)
	for _, l := range t.Lanes {
		for _, b := range l.Bars {
			if b.Instruction >= len(p.Instructions) {
				continue
			}
			start, end := b.Start, b.End
			if t.Step > 0 {
				start, end = b.MeasuredAt, b.MeasuredEnd
			}
			s := &p.Instructions[b.Instruction]
			add := func(buffer int, kind GlowKind) {
				if at, has := cells.of(buffer); has {
					mo.Moves = append(mo.Moves, Glow{at.row, at.column, kind, start, end, b.Bytes})
				}
			}
			switch b.Verb {
			case trace.Move:
				if _, home := cells.homes[s.Src]; home {
					add(s.Src, ComesIn)
				} else if _, home := cells.homes[s.Dst]; home {
					add(s.Dst, GoesOut)
				}
			case trace.Run:
				for _, bound := range s.Bindings {
					if bound.Region == plan.InWeight || bound.Region == plan.InGrad {
						add(bound.Buffer, InUse)
					}
				}
			case trace.Update:
				for _, bound := range s.Bindings {
					add(bound.Buffer, Updated)
				}
			}
		}
	}
	return mo
}

// cell is a place of a map.
type cell struct{ row, column int }

// cells finds the cell that a buffer is of: homes, and copies of them on a device, which are
// known by the moves that fill and empty them.
type cells struct{ homes, copies map[int]cell }

func (c cells) of(buffer int) (cell, bool) {
	at, has := c.homes[buffer]
	if !has {
		at, has = c.copies[buffer]
	}
	return at, has
}

func cellsOf(p *plan.Plan, m Map) cells {
	rows := map[plan.Class]int{}
	for i, r := range m.Rows {
		rows[r.Class] = i
	}
	c := cells{map[int]cell{}, map[int]cell{}}
	for column, s := range p.Slabs {
		add := func(class plan.Class, buffer int) {
			if row, has := rows[class]; has && buffer >= 0 {
				c.homes[buffer] = cell{row, column}
			}
		}
		add(plan.Weight, s.Weight)
		add(plan.Gradient, s.Gradient)
		for _, r := range s.Replicas {
			add(plan.Weight, r)
		}
		for _, piece := range s.Pieces {
			add(plan.Master, piece.Master)
			add(plan.State, piece.State)
		}
	}
	for i := range p.Instructions {
		if s := &p.Instructions[i]; s.Verb == plan.Move {
			if at, has := c.homes[s.Src]; has {
				c.copies[s.Dst] = at
			} else if at, has := c.homes[s.Dst]; has {
				c.copies[s.Src] = at
			}
		}
	}
	return c
}
