package plan

import (
	"fmt"
	"io"
	"strings"

	"spillway/units"
)

// Text writes the plan as people read it: arenas, homes, then one instruction per line,
// with frees at the end of the line they follow.
func (p *Plan) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %s, %s: %s\n", p.Model, p.Task, p.Strategy)
	fmt.Fprintf(&b, "because %s\n", p.Reason)
	fmt.Fprintf(&b, "batch %d micro-batches of %d × %d\n", p.MicroBatches, p.MicroBatchSize, p.Seq)
	for i, a := range p.Arenas {
		fmt.Fprintf(&b, "arena %d %s %s, %d bytes\n", i, a.Name, a.Tier, a.Bytes)
	}
	states := map[int]string{} // by home of states: which it holds, ", 7 × exp_avg dyn8 and exp_avg_sq udyn8"
	for _, s := range p.Slabs {
		for _, piece := range s.Pieces {
			if piece.State >= 0 {
				states[piece.State] = s.stateText(piece)
			}
		}
	}
	for i, buf := range p.Buffers {
		if buf.Home {
			fmt.Fprintf(&b, "home %s: %s, arena %d at %d, %d bytes%s\n", p.label(i), buf.Class, buf.Arena, buf.Offset, buf.Bytes, states[i])
		}
	}
	if p.Captured {
		b.WriteString("captured as a graph\n")
	}
	for i := range p.Instructions {
		p.instructionText(&b, i)
	}
	b.WriteString("\n")
	for _, ph := range p.Phases {
		fmt.Fprintf(&b, "phase %s\n", ph.Name)
		q := *p
		q.Instructions = ph.Instructions
		for i := range q.Instructions {
			q.instructionText(&b, i)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

func (s *Slab) stateText(piece Piece) (text string) {
	var sorts []string
	params := map[string]int{}
	for _, q := range s.Params {
		if len(q.States) == 0 || q.Within(piece).Frozen() {
			continue
		}
		var list []string
		for _, state := range q.States {
			list = append(list, state.Name+" "+state.Type.DType.String())
		}
		sort := strings.Join(list, " and ")
		if params[sort]++; params[sort] == 1 {
			sorts = append(sorts, sort)
		}
	}
	for _, sort := range sorts {
		text += fmt.Sprintf(", %d × %s", params[sort], sort)
	}
	return text
}

func (p *Plan) instructionText(b *strings.Builder, i int) {
	s := &p.Instructions[i]
	if s.Verb == Free {
		fmt.Fprintf(b, "; free %s", p.label(s.Dst))
		return
	}
	fmt.Fprintf(b, "\n%4d %-7s ", i, s.Lane)
	switch s.Verb {
	case Move:
		fmt.Fprintf(b, "move %s to #%d %s@%d, %v", p.label(s.Src), s.Dst, p.TierOf(s.Dst), p.Buffers[s.Dst].Offset, units.Bytes(p.Buffers[s.Src].Bytes))
	case Run:
		fmt.Fprintf(b, "run %s", p.Programs[s.Program].Graph.Name)
		if s.MicroBatch >= 0 {
			fmt.Fprintf(b, " micro %d", s.MicroBatch)
		}
		p.bindText(b, s)
	case Reduce:
		b.WriteString("reduce")
		p.bindText(b, s)
	case Update:
		fmt.Fprintf(b, "update %s", p.Slabs[s.Slab].Name)
		p.bindText(b, s)
	}
	if len(s.After) > 0 {
		fmt.Fprintf(b, " after %s", strings.Trim(fmt.Sprint(s.After), "[]"))
	}
	if len(s.AfterPrevious) > 0 {
		fmt.Fprintf(b, " after previous %s", strings.Trim(fmt.Sprint(s.AfterPrevious), "[]"))
	}
	if s.CarriesOver {
		b.WriteString(", carries over")
	}
}

func (p *Plan) bindText(b *strings.Builder, s *Instruction) {
	for _, bind := range s.Bindings {
		if bind.Region == InFrame || bind.Region == InConst || bind.Region == InBatch {
			continue
		}
		fmt.Fprintf(b, " %s=%s", bind.Region, p.label(bind.Buffer))
	}
}

// label names a buffer by its number and name.
func (p *Plan) label(id int) string {
	return fmt.Sprintf("#%d[%s]", id, p.Buffers[id].Name)
}
