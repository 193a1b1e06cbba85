package plan

import (
	"fmt"
	"slices"
)

// A small model's kernels take less time than launching them. A captured iteration is
// recorded once by the driver, as a CUDA graph, and replayed with one call: the same
// work in the same order between the same waits, so the same bits.

// MaxCaptured is the most launches and copies a captured iteration has. A driver keeps
// some KiB for each; their sum stays within what is set aside for first runs.
const MaxCaptured = 2048

// Launches is how many kernels and copies the instructions give to queues.
func (p *Plan) Launches() (n int) {
	for i := range p.Instructions {
		switch s := &p.Instructions[i]; s.Verb {
		case Run:
			n += len(p.Programs[s.Program].Graph.Nodes)
		case Move:
			n++
		case Reduce:
			n += max(1, len(s.Bindings)-1)
		case Update:
			slab := &p.Slabs[s.Slab]
			n += len(p.Optimizer.Spans(slab, slab.Pieces[s.Piece]))
		}
	}
	return n
}

// CanCapture says whether an iteration may be captured: it is of one device, small enough, and
// where the next batch comes meanwhile, reads nothing of its own from the host.
func (p *Plan) CanCapture() bool {
	if p.Optimizer != nil && p.Optimizer.Held { // what an update does is the loop's choice
		return false
	}
	return !p.readsUnseen() && len(p.Devices) == 1 && len(p.Instructions) <= 2*MaxCaptured && p.Launches() <= MaxCaptured
}

// Capture is the plan with captured iterations. Nothing carries over then, since a replayed
// graph waits for no part of the one before, but for the next batch, which is no part of it.
func (p *Plan) Capture() *Plan {
	q := *p
	q.Captured = true
	q.Instructions = append([]Instruction(nil), p.Instructions...)
	for i := range q.Instructions {
		s := &q.Instructions[i]
		var brought []int
		for _, a := range s.AfterPrevious {
			if p.BringsNextBatch(&p.Instructions[a]) {
				brought = append(brought, a)
			}
		}
		s.CarriesOver, s.AfterPrevious = p.BringsNextBatch(s), brought
		if take := p.takeOf(s); take >= 0 && !slices.Contains(s.After, take) {
			s.After = append(slices.Clone(s.After), take)
		}
	}
	return &q
}

// takeOf is the instruction that takes what an instruction brings for the next iteration, -1 for none. Where an iteration is
// captured the one must wait for the other itself: neither is a part of the graph, so that what their lanes do in it says nothing
// of their order.
func (p *Plan) takeOf(s *Instruction) int {
	if !p.BringsNextBatch(s) {
		return -1
	}
	return slices.IndexFunc(p.Instructions, func(t Instruction) bool { return p.TakesBatch(&t) && t.Src == s.Dst })
}

func verifyCaptured(p *Plan) error {
	if !p.Captured {
		return nil
	}
	if !p.CanCapture() {
		return fmt.Errorf("it is captured with %d launches on %d devices; at most %d on one can be", p.Launches(), len(p.Devices), MaxCaptured)
	}
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if s.CarriesOver && !p.BringsNextBatch(s) {
			return fmt.Errorf("it is captured, and instruction %d carries over", i)
		}
		if take := p.takeOf(s); take >= 0 && !slices.Contains(s.After, take) {
			return fmt.Errorf("it is captured, and instruction %d brings the next batch without waiting for instruction %d, which takes the one before", i, take)
		}
	}
	return nil
}
