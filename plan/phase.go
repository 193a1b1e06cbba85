package plan

import "fmt"

// Phase is another list of instructions over the memory of a plan. The plan's own
// instructions are its main phase; whoever runs a plan chooses what comes next. Homes
// keep their contents from phase to phase, all other buffers live inside one.
type Phase struct {
	Name         string        `json:"name"`
	Instructions []Instruction `json:"instructions"`
	Captured     bool          `json:"captured,omitempty"`
	// Batch is what a micro-batch of the phase consists of, in a home of its own; nil where
	// the phase reads the plan's.
	Batch []BatchTensor `json:"batch,omitempty"`
	// MicroBatches is how many there are of them; 0 where there are as many as in the plan.
	MicroBatches int     `json:"micro_batches,omitempty"`
	Seconds      float64 `json:"seconds,omitempty"` // that it takes, by the forecast
}

// Phase finds a phase by name, as a plan over the same memory.
func (p *Plan) Phase(name string) (*Plan, error) {
	for _, ph := range p.Phases {
		if ph.Name == name {
			q := *p
			q.Instructions, q.Captured, q.Phases, q.Forecast = ph.Instructions, ph.Captured, nil, nil
			if ph.Batch != nil {
				q.Batch = ph.Batch
			}
			if ph.MicroBatches > 0 {
				q.MicroBatches = ph.MicroBatches
			}
			return &q, nil
		}
	}
	return nil, fmt.Errorf("the plan for %s has no phase %q", p.Model, name)
}

// Evaluate is the name of the phase that computes the results of an iteration without
// dropout and changes nothing.
const Evaluate = "evaluate"

// Step is the name of the phase of a plan to generate that computes so many rows: tokens of
// any sequences. The main phase is the one with most.
func Step(rows int64) string { return fmt.Sprintf("step of %d", rows) }

// Draw is the name of a step that gives tokens, drawn on the device, instead of logits.
func Draw(rows int64) string { return fmt.Sprintf("draw of %d", rows) }

// Pass is the name of the phase of a plan to generate that takes so many chunks of prompts through
// each block before the next, so that weights that stream do so once for all of them.
func Pass(chunks int) string { return fmt.Sprintf("pass of %d chunks", chunks) }

// BatchHome is the home that the instructions copy the batch of a micro-batch from; -1 for
// none.
func (p *Plan) BatchHome(micro int) int {
	for i := range p.Instructions {
		if s := &p.Instructions[i]; s.Verb == Move && max(s.MicroBatch, 0) == micro && p.isHostBatch(s.Src) {
			return s.Src
		}
	}
	return -1
}

// ResultHome is where the result of a micro-batch is copied to; -1 for none.
func (p *Plan) ResultHome(micro int) int {
	for i := range p.Instructions {
		if s := &p.Instructions[i]; s.Verb == Move && max(s.MicroBatch, 0) == micro && p.Buffers[s.Dst].Home && p.Buffers[s.Dst].Class == ResultData {
			return s.Dst
		}
	}
	return -1
}

// verifyPhases: further phases have names of their own, and are complete in themselves.
func verifyPhases(p *Plan) error {
	seen := map[string]bool{"": true}
	for _, ph := range p.Phases {
		if seen[ph.Name] {
			return fmt.Errorf("two phases have the name %q", ph.Name)
		}
		seen[ph.Name] = true
		if err := p.verifyPhaseBatch(ph); err != nil {
			return fmt.Errorf("phase %s: %w", ph.Name, err)
		}
		for i, s := range ph.Instructions {
			if s.Verb == Update || s.Deferred || s.CarriesOver || len(s.AfterPrevious) > 0 {
				return fmt.Errorf("phase %s: instruction %d, %s, updates, is deferred or carries over; only the main phase does", ph.Name, i, s.Verb)
			}
		}
	}
	return nil
}

// verifyPhaseBatch: the tensors of a phase's own batch lie in the home that it reads.
func (p *Plan) verifyPhaseBatch(ph Phase) error {
	if ph.MicroBatches < 0 || ph.MicroBatches > len(ph.Instructions) {
		return fmt.Errorf("%d micro-batches by %d instructions", ph.MicroBatches, len(ph.Instructions))
	}
	if ph.Batch == nil {
		return nil
	}
	view := *p
	view.Instructions = ph.Instructions
	for micro := range max(ph.MicroBatches, 1) {
		home, bytes := view.BatchHome(micro), int64(0)
		if home >= 0 {
			bytes = p.Buffers[home].Bytes
		}
		for _, t := range ph.Batch {
			if n := t.Type.Bytes(); t.Type.Shape.Check() != nil || t.Offset < 0 || t.Offset > bytes || n > bytes-t.Offset {
				return fmt.Errorf("batch tensor %s %v of micro-batch %d at %d is outside its home of %d bytes", t.Name, t.Type, micro, t.Offset, bytes)
			}
		}
	}
	return nil
}
