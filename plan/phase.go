package plan

import (
	"fmt"
	"slices"

	"spillway/graph"
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
		if s.Verb == Run && slices.ContainsFunc(p.Programs[s.Program].Graph.Nodes, func(n graph.Node) bool { return n.Kind == op.Dropout }) {
			return nil, fmt.Errorf("program %s has dropout", p.Programs[s.Program].Graph.Name)
		}
		for _, a := range accesses[i] {
			wanted[a.Buffer] = wanted[a.Buffer] || a.Read
		}
	}
	return needed, nil
}

// only lists some of the instructions, ordered among each other as in the plan, and frees
// what they leave.
func (p *Plan) only(some []bool) (list []Instruction) {
	accesses, waits := p.Accesses(), p.waitsAmong(some)
	last := make([]int, len(p.Buffers)) // 1 + the instruction that touches a buffer last
	for i := range p.Instructions {
		for _, a := range accesses[i] {
			if some[i] && !p.Buffers[a.Buffer].Home {
				last[a.Buffer] = i + 1
			}
		}
	}
	at := make([]int, len(p.Instructions)) // where an instruction is in the list
	for i, s := range p.Instructions {
		if !some[i] {
			continue
		}
		s.After, s.AfterPrevious, s.CarriesOver = nil, nil, false
		for _, a := range waits[i] {
			if p.Instructions[a].LaneIndex() != s.LaneIndex() { // else the lane orders them
				s.After = append(s.After, at[a])
			}
		}
		at[i] = len(list)
		list = append(list, s)
		for _, a := range accesses[i] {
			if last[a.Buffer] == i+1 {
				last[a.Buffer] = 0 // freed once
				list = append(list, Instruction{Verb: Free, Block: s.Block, MicroBatch: s.MicroBatch, Dst: a.Buffer})
			}
		}
	}
	return list
}

// waitsAmong gives, for every instruction, those of some that it waits for, directly or
// through others that are left out.
func (p *Plan) waitsAmong(some []bool) [][]int {
	waits := make([][]int, len(p.Instructions))
	previous := make([]int, len(p.Devices)*len(Lanes)) // by lane: 1 + its instruction so far
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if s.Verb == Free {
			continue
		}
		if before := previous[s.LaneIndex()]; before > 0 {
			waits[i] = append(waits[i], reached(before-1, some, waits)...)
		}
		for _, a := range s.After {
			waits[i] = append(waits[i], reached(a, some, waits)...)
		}
		slices.Sort(waits[i])
		waits[i] = slices.Compact(waits[i])
		previous[s.LaneIndex()] = i + 1
	}
	return waits
}

// reached is an instruction if it is one of some, else those that it waits for.
func reached(i int, some []bool, waits [][]int) []int {
	if some[i] {
		return []int{i}
	}
	return waits[i]
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
