package plan

import (
	"fmt"
	"slices"

	"spillway/op"
)

// Phase is another list of instructions over the memory of a plan. The plan's own
// instructions are its main phase; whoever runs a plan chooses what comes next. Homes
// keep their contents from phase to phase, all other buffers live inside one.
type Phase struct {
	Name         string        `json:"name"`
	Instructions []Instruction `json:"instructions"`
	Captured     bool          `json:"captured,omitempty"`
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

// Evaluate is the name of the phase that Evaluation makes.
const Evaluate = "evaluate"

// Evaluation is the phase that computes the results of an iteration and nothing else:
// the instructions on which they depend, in their order. It needs no memory of its own.
// Plans whose weights are made by deferred updates, and programs with dropout, have none.
func (p *Plan) Evaluation() (Phase, error) {
	needed, err := p.neededForResults()
	if err != nil {
		return Phase{}, fmt.Errorf("evaluating with the plan for %s: %w", p.Model, err)
	}
	return Phase{Name: Evaluate, Instructions: p.only(needed)}, nil
}

// neededForResults finds the instructions on which results depend, walking backwards.
func (p *Plan) neededForResults() (needed []bool, err error) {
	wanted := make([]bool, len(p.Buffers))
	for id, b := range p.Buffers {
		wanted[id] = b.Class == ResultData
	}
	accesses := p.Accesses()
	needed = make([]bool, len(p.Instructions))
	for i := len(p.Instructions) - 1; i >= 0; i-- {
		s := &p.Instructions[i]
		if s.Deferred {
			return nil, fmt.Errorf("instruction %d is deferred: weights are not at home between iterations", i)
		}
		needed[i] = slices.ContainsFunc(accesses[i], func(a Access) bool { return a.Write && wanted[a.Buffer] })
		if !needed[i] {
			continue
		}
		if s.Verb == Run && p.Programs[s.Program].drops() {
			return nil, fmt.Errorf("program %s has dropout", p.Programs[s.Program].Graph.Name)
		}
		for _, a := range accesses[i] {
			wanted[a.Buffer] = wanted[a.Buffer] || a.Read
		}
	}
	return needed, nil
}

// drops says whether the program sets random elements to zero.
func (g *Program) drops() bool {
	for _, n := range g.Graph.Nodes {
		if n.Kind == op.Dropout {
			return true
		}
	}
	return false
}

// only lists some of the instructions, ordered among each other as in the plan, and frees
// what they leave.
func (p *Plan) only(some []bool) (list []Instruction) {
	accesses := p.Accesses()
	last := make([]int, len(p.Buffers)) // instruction that touches a buffer last
	for i := range p.Instructions {
		for _, a := range accesses[i] {
			if some[i] {
				last[a.Buffer] = i
			}
		}
	}
	at := make([]int, len(p.Instructions))       // where an instruction is in the list
	before := make([][]int, len(p.Instructions)) // those of the list to wait for behind one that is left out
	lanes := make([]int, len(p.Devices)*len(Lanes))
	for i := range p.Instructions {
		s := p.Instructions[i]
		if s.Verb == Free {
			continue
		}
		waits, lane := []int(nil), s.LaneIndex()
		for _, a := range append(s.After[:len(s.After):len(s.After)], lanes[lane]-1) {
			switch {
			case a < 0:
			case some[a]:
				waits = append(waits, at[a])
			default:
				waits = append(waits, before[a]...)
			}
		}
		lanes[lane] = i + 1
		slices.Sort(waits)
		before[i] = slices.Compact(waits)
		if !some[i] {
			continue
		}
		s.After, s.AfterPrevious, s.CarriesOver = before[i], nil, false
		at[i] = len(list)
		list = append(list, s)
		for _, a := range accesses[i] {
			if !p.Buffers[a.Buffer].Home && last[a.Buffer] == i {
				last[a.Buffer] = -1 // once
				list = append(list, Instruction{Verb: Free, Block: s.Block, MicroBatch: s.MicroBatch, Dst: a.Buffer})
			}
		}
	}
	return list
}

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
