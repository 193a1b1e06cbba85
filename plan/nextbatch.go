package plan

import (
	"fmt"
	"slices"
)

// The batch of the next iteration may come to a device while this one runs. It then has a home
// there, which an iteration takes its batch from when it begins, and which it fills with the
// next one:
//
//	0 compute move #3[next batch 0] to #8[batch 0]
//	...
//	9 in      move #1[batch 0] to #3[next batch 0] after 0, carries over
//
// The host fills its own home in between, once nothing reads that any more.

// IsNextBatch says whether a buffer holds the next batch on a device.
func (p *Plan) IsNextBatch(buffer int) bool {
	return p.isBatchHome(buffer) && p.TierOf(buffer) == OnDevice
}

// TakesBatch says whether an instruction takes the batch that came during the previous iteration.
func (p *Plan) TakesBatch(s *Instruction) bool { return s.Verb == Move && p.IsNextBatch(s.Src) }

// BringsNextBatch says whether an instruction brings the batch of the next iteration.
func (p *Plan) BringsNextBatch(s *Instruction) bool { return s.Verb == Move && p.IsNextBatch(s.Dst) }

// PrefetchesBatch says whether the batch of the next iteration comes while one runs.
func (p *Plan) PrefetchesBatch() bool {
	return slices.ContainsFunc(p.Instructions, func(s Instruction) bool { return p.BringsNextBatch(&s) })
}

// ReadsHostBatch says whether an instruction copies a part of the batch of its own iteration from
// the host.
func (p *Plan) ReadsHostBatch(s *Instruction) bool {
	return s.Verb == Move && !p.BringsNextBatch(s) && p.isHostBatch(s.Src)
}

// UsesHostBatch says whether something else than copies to devices looks at where the host puts batches.
func (p *Plan) UsesHostBatch() bool {
	uses := func(buffer int) bool {
		pages := p.Buffers[buffer].Pages
		return p.isHostBatch(buffer) || pages != nil && p.isHostBatch(pages.Table)
	}
	for i := range p.Instructions {
		switch s := &p.Instructions[i]; {
		case s.Verb == Free:
		case s.Verb == Move && (uses(s.Dst) || p.TierOf(s.Dst) != OnDevice && uses(s.Src)):
			return true
		case slices.ContainsFunc(s.Bindings, func(b Binding) bool { return uses(b.Buffer) }):
			return true
		}
	}
	return false
}

// verifyNextBatch: P13, what comes for the next iteration is taken by it.
func verifyNextBatch(p *Plan) error {
	brings, takes := make([]int, len(p.Buffers)), make([]int, len(p.Buffers)) // by buffer: 1 + the instruction
	ran := make([]bool, len(p.Devices))
	brought := 0 // 1 + the last so far that brings a batch
	for i, accesses := range p.Accesses() {
		s := &p.Instructions[i]
		if s.Verb != Move {
			ran[s.Device] = ran[s.Device] || s.Verb != Free
			for _, a := range accesses {
				if p.IsNextBatch(a.Buffer) {
					return fmt.Errorf("instruction %d, %s, uses the next batch, which is only moved", i, s.Verb)
				}
			}
		}
		switch {
		case s.Verb == Free:
		case p.BringsNextBatch(s) && (brings[s.Dst] > 0 || !s.CarriesOver || s.Lane != In || !p.isHostBatch(s.Src) || p.Arenas[p.Buffers[s.Dst].Arena].Device != s.Device):
			return fmt.Errorf("instruction %d brings the next batch, and is not the one copy of it from the host that carries over", i)
		case p.BringsNextBatch(s):
			brings[s.Dst], brought = i+1, i+1
		case brought > 0:
			return fmt.Errorf("instruction %d comes behind instruction %d, which brings the next batch", i, brought-1)
		case p.TakesBatch(s) && (takes[s.Src] > 0 || ran[s.Device] || len(s.After) > 0 || s.Lane != Compute || p.Buffers[s.Dst].Home || p.Buffers[s.Dst].Arena != p.Buffers[s.Src].Arena || p.Arenas[p.Buffers[s.Src].Arena].Device != s.Device):
			return fmt.Errorf("instruction %d takes the batch of the iteration, and is not the first of its device", i)
		case p.TakesBatch(s):
			takes[s.Src] = i + 1
		}
	}
	for id := range p.Buffers {
		if (brings[id] > 0) != (takes[id] > 0) || p.IsNextBatch(id) && brings[id] == 0 {
			return fmt.Errorf("buffer %s holds the next batch, and is not both filled and taken", p.Buffers[id].Name)
		}
	}
	return nil
}

// verifyNoNextBatch: P13 of a phase, which leaves the next batch where it waits for its iteration.
func verifyNoNextBatch(p *Plan) error {
	for i, accesses := range p.Accesses() {
		for _, a := range accesses {
			if p.IsNextBatch(a.Buffer) {
				return fmt.Errorf("instruction %d, %s, touches the next batch, which waits for the next iteration", i, p.Instructions[i].Verb)
			}
		}
	}
	return nil
}

// isHostBatch says whether a buffer is where the host puts a batch.
func (p *Plan) isHostBatch(buffer int) bool {
	return p.isBatchHome(buffer) && p.TierOf(buffer) != OnDevice
}

// isBatchHome says whether a buffer exists and keeps a batch.
func (p *Plan) isBatchHome(buffer int) bool {
	return p.buffersExist(buffer) == nil && p.Buffers[buffer].Home && p.Buffers[buffer].Class == BatchData
}

// readsUnseen says whether a captured iteration would read a part of its batch from the host at a time
// that nobody learns of, so that the host could not tell when it may put the next one there.
func (p *Plan) readsUnseen() bool {
	return p.PrefetchesBatch() && slices.ContainsFunc(p.Instructions, func(s Instruction) bool { return p.ReadsHostBatch(&s) })
}
