package plan

import "fmt"

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

// CanCapture says whether an iteration may be captured: it is of one device, and small
// enough.
func (p *Plan) CanCapture() bool {
	if p.Optimizer != nil && p.Optimizer.Held { // what an update does is the loop's choice
		return false
	}
	return len(p.Devices) == 1 && len(p.Instructions) <= 2*MaxCaptured && p.Launches() <= MaxCaptured
}

// Capture is the plan with captured iterations. Nothing carries over then: a replayed
// graph waits for no part of the one before.
func (p *Plan) Capture() *Plan {
	q := *p
	q.Captured = true
	q.Instructions = append([]Instruction(nil), p.Instructions...)
	for i := range q.Instructions {
		q.Instructions[i].CarriesOver, q.Instructions[i].AfterPrevious = false, nil
	}
	return &q
}

func verifyCaptured(p *Plan) error {
	if !p.Captured {
		return nil
	}
	if !p.CanCapture() {
		return fmt.Errorf("it is captured with %d launches on %d devices; at most %d on one can be", p.Launches(), len(p.Devices), MaxCaptured)
	}
	for i := range p.Instructions {
		if p.Instructions[i].CarriesOver {
			return fmt.Errorf("it is captured, and instruction %d carries over", i)
		}
	}
	return nil
}
