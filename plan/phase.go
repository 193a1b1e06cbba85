package plan

import "fmt"

// Phase is another list of instructions over the memory of a plan. The plan's own
// instructions are its main phase; whoever runs a plan chooses what comes next. Homes
// keep their contents from phase to phase, all other buffers live inside one.
type Phase struct {
	Name         string        `json:"name"`
	Instructions []Instruction `json:"instructions"`
	Captured     bool          `json:"captured,omitempty"`
	Seconds      float64       `json:"seconds,omitempty"` // that it takes, by the forecast
}

// Phase finds a phase by name, as a plan over the same memory.
func (p *Plan) Phase(name string) (*Plan, error) {
	for _, ph := range p.Phases {
		if ph.Name == name {
			q := *p
			q.Instructions, q.Captured, q.Phases, q.Forecast = ph.Instructions, ph.Captured, nil, nil
			return &q, nil
		}
	}
	return nil, fmt.Errorf("the plan for %s has no phase %q", p.Model, name)
}

// Evaluate is the name of the phase that computes the results of an iteration without
// dropout and changes nothing.
const Evaluate = "evaluate"

// verifyPhases: further phases have names of their own, and are complete in themselves.
func verifyPhases(p *Plan) error {
	seen := map[string]bool{"": true}
	for _, ph := range p.Phases {
		if seen[ph.Name] {
			return fmt.Errorf("two phases have the name %q", ph.Name)
		}
		seen[ph.Name] = true
		for i, s := range ph.Instructions {
			if s.Verb == Update || s.Deferred || s.CarriesOver || len(s.AfterPrevious) > 0 {
				return fmt.Errorf("phase %s: instruction %d, %s, updates, is deferred or carries over; only the main phase does", ph.Name, i, s.Verb)
			}
		}
	}
	return nil
}
