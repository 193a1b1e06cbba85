package emit

import (
	"fmt"
	"slices"

	"spillway/plan"
	"spillway/planner/pass"
	"spillway/planner/strategy"
)

// Phase is further instructions that a plan is to have: those of another trace of the same
// model, with other sizes of a batch.
type Phase struct {
	Name   string
	Writer *Writer // of the layout of that trace
	// MicroBatches of the layout, where they are not as many as the plan's; 0 otherwise. All of them
	// pass a block before the next block.
	MicroBatches int
}

// WithPhases is a plan with further phases that share its homes: weights, constants and
// caches. They have homes of their own for batch and result, behind everything else. All
// other buffers of a phase lie where those of the plan do, since one phase runs at a time.
// The choice is that of the plan.
func WithPhases(p *plan.Plan, c strategy.Choice, align int64, phases []Phase) (*plan.Plan, error) {
	q := *p
	q.Programs, q.Buffers, q.Arenas, q.Phases = slices.Clone(p.Programs), slices.Clone(p.Buffers), slices.Clone(p.Arenas), slices.Clone(p.Phases)
	bases := homeEnds(p, align)
	var homes []int // of the phases, which follow all other buffers
	for _, ph := range phases {
		c := c
		c.BreadthFirst = c.BreadthFirst || ph.MicroBatches > 1
		of, err := ph.Writer.Plan(c)
		if err != nil {
			return nil, err
		}
		pass.Order(of)
		added, err := join(&q, of, p, bases, align)
		if err != nil {
			return nil, fmt.Errorf("phase %s of the plan for %s: %w", ph.Name, p.Model, err)
		}
		homes = append(homes, added...)
		q.Phases = append(q.Phases, plan.Phase{Name: ph.Name, Instructions: of.Instructions, Batch: of.Batch, MicroBatches: ph.MicroBatches})
	}
	for _, id := range homes {
		b := &q.Buffers[id]
		arena := &q.Arenas[b.Arena]
		b.Offset = pass.AlignUp(arena.Bytes, align)
		arena.Bytes = b.Offset + b.Bytes
	}
	return &q, nil
}

// homeEnds is, by arena, where its homes end and other buffers begin.
func homeEnds(p *plan.Plan, align int64) []int64 {
	ends := make([]int64, len(p.Arenas))
	for _, b := range p.Buffers {
		if b.Home {
			ends[b.Arena] = max(ends[b.Arena], pass.AlignUp(b.Offset+b.Bytes, align))
		}
	}
	return ends
}

// join adds the programs and buffers of a plan to another one, and renumbers its
// instructions. Homes that the main plan has too are the same; it returns the others, which
// have no place yet.
func join(to, of, main *plan.Plan, bases []int64, align int64) (homes []int, err error) {
	if len(of.Arenas) != len(to.Arenas) || len(of.Slabs) != len(to.Slabs) {
		return nil, fmt.Errorf("it has %d arenas and %d slabs, the plan %d and %d", len(of.Arenas), len(of.Slabs), len(to.Arenas), len(to.Slabs))
	}
	own := func(b plan.Buffer) bool { return b.Class == plan.BatchData || b.Class == plan.ResultData }
	ends, ids, next := homeEnds(of, align), make([]int, len(of.Buffers)), 0
	for id, b := range of.Buffers {
		if b.Home && !own(b) {
			for next < len(main.Buffers) && (!main.Buffers[next].Home || own(main.Buffers[next])) {
				next++
			}
			if next == len(main.Buffers) || main.Buffers[next].Name != b.Name || main.Buffers[next].Arena != b.Arena || main.Buffers[next].Bytes != b.Bytes {
				return nil, fmt.Errorf("its home %s of %d bytes is not one of the plan", b.Name, b.Bytes)
			}
			ids[id] = next
			next++
			continue
		}
		ids[id] = len(to.Buffers)
		if b.Home {
			homes = append(homes, ids[id])
		} else {
			b.Offset += bases[b.Arena] - ends[b.Arena]
			to.Arenas[b.Arena].Bytes = max(to.Arenas[b.Arena].Bytes, b.Offset+b.Bytes)
		}
		to.Buffers = append(to.Buffers, b)
	}
	for i := range of.Instructions {
		s := &of.Instructions[i]
		s.CarriesOver, s.AfterPrevious = false, nil // a phase waits for all of its copies
		switch s.Verb {
		case plan.Move:
			s.Src, s.Dst = ids[s.Src], ids[s.Dst]
		case plan.Free:
			s.Dst = ids[s.Dst]
		case plan.Run:
			s.Program += len(to.Programs)
		}
		for k := range s.Bindings {
			s.Bindings[k].Buffer = ids[s.Bindings[k].Buffer]
		}
	}
	to.Programs = append(to.Programs, of.Programs...)
	return homes, nil
}
