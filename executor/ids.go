package executor

import (
	"encoding/binary"
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
)

// idCheck says which ids some places of a tensor of the batch may hold.
type idCheck struct {
	tensor string
	ids    op.IDs
	places []int32 // of the tensor, of one micro-batch; nil for all
}

// moves are the ops that only put ids to other places: what reads their output reads ids of the batch.
var moves = map[op.Kind]bool{op.Reshape: true, op.Permute: true, op.Expand: true, op.Slice: true, op.Split: true, op.Concat: true}

// idChecks of the tensors of a batch, for every op that reads ids from them, as they are or moved, also where blocks pass them on.
func idChecks(p *plan.Plan) (list []idCheck, err error) {
	for _, t := range p.Batch {
		if t.Type.DType != dtype.I32 {
			continue
		}
		for _, instructions := range slices.Concat([][]plan.Instruction{p.Instructions}, phases(p)) {
			f := &followed{plan: p, tensor: t.Name, seen: map[int]bool{}, list: list}
			if err := f.through(instructions); err != nil {
				return nil, err
			}
			list = f.list
		}
	}
	return list, nil
}

// phases are the instructions of those that read the plan's own batch.
func phases(p *plan.Plan) (list [][]plan.Instruction) {
	for _, ph := range p.Phases {
		if ph.Batch == nil {
			list = append(list, ph.Instructions)
		}
	}
	return list
}

// followed is a tensor of the batch on its way through the blocks.
type followed struct {
	plan   *plan.Plan
	tensor string
	carry  map[int]op.Array // what blocks pass on of it now, by index; see ownPlaces
	seen   map[int]bool     // programs that were looked at
	list   []idCheck
}

// through follows the tensor of the first micro-batch; the others take the same way.
func (f *followed) through(instructions []plan.Instruction) error {
	for i := range instructions {
		s := &instructions[i]
		_, passes := s.Bound(plan.OutCarry, 0)
		_, ends := s.Bound(plan.OutResult, 0)
		forward := s.MicroBatch <= 0 && (passes || ends)
		if s.Verb != plan.Run || !forward && f.seen[s.Program] {
			continue
		}
		g := f.plan.Programs[s.Program].Graph
		f.seen[s.Program] = true
		if err := f.program(g, forward); err != nil {
			return fmt.Errorf("program %s: where ids of %s go: %w", g.Name, f.tensor, err)
		}
	}
	return nil
}

// program finds the ops that read the tensor, and what the program passes on of it. Only a forward gets what the block before passed on:
// a backward computes nothing with ids that its forward has not.
func (f *followed) program(g *graph.Program, forward bool) error {
	numbers := map[graph.Value]op.Array{}
	for _, port := range g.Inputs {
		switch {
		case port.Role == graph.Batch && port.Name == f.tensor:
			numbers[port.Value] = ownPlaces(g.Type(port.Value))
		case port.Role == graph.Carry && forward:
			if a, is := f.carry[port.Index]; is {
				numbers[port.Value] = a
			}
		}
	}
	if err := move(g, numbers); err != nil {
		return err
	}
	all := int64(0)
	for _, t := range f.plan.Batch {
		if t.Name == f.tensor {
			all = t.Type.Shape.Elements()
		}
	}
	for _, n := range g.Nodes {
		ids, ok := g.Call(n).IDs()
		if !ok {
			continue
		}
		if read, is := numbers[n.In[ids.Operand]]; is {
			f.list = addCheck(f.list, idCheck{f.tensor, ids, placesOf(read, all)})
		}
	}
	if !forward {
		return nil
	}
	f.carry = map[int]op.Array{}
	for _, port := range graph.Ports(g.Outputs, graph.Carry) {
		if a, is := numbers[port.Value]; is {
			f.carry[port.Index] = a
		}
	}
	return nil
}

// addCheck adds one that those there are do not make already: plans have many programs that read the same.
func addCheck(list []idCheck, c idCheck) []idCheck {
	for _, had := range list {
		if had.tensor == c.tensor && had.ids.Count <= c.ids.Count && (c.ids.AllowsIgnored || !had.ids.AllowsIgnored) && (had.places == nil || slices.Equal(had.places, c.places)) {
			return list
		}
	}
	return append(list, c)
}

// move finds the values of a program that hold ids of a tensor, from those that are known to: by moving the numbers of the places
// themselves, which count from 1; 0 stands for something else.
func move(g *graph.Program, numbers map[graph.Value]op.Array) error {
	for _, n := range g.Nodes {
		if !moves[n.Kind] || !slices.ContainsFunc(n.In, func(v graph.Value) bool { _, is := numbers[v]; return is }) {
			continue
		}
		in, out := make([]op.Array, len(n.In)), make([]op.Array, len(n.Out))
		for i, v := range n.In {
			a, is := numbers[v]
			if !is {
				a = op.NewArray(g.Type(v))
			}
			in[i] = a
		}
		for i, v := range n.Out {
			out[i] = op.NewArray(g.Type(v))
		}
		if err := g.Call(n).Reference(in, out, op.Args{}); err != nil {
			return err
		}
		for i, v := range n.Out {
			if slices.ContainsFunc(out[i].I, func(place int32) bool { return place != 0 }) { // else it holds others
				numbers[v] = out[i]
			}
		}
	}
	return nil
}

// ownPlaces is a tensor whose numbers are its own places, from 1 on.
func ownPlaces(t op.Type) op.Array {
	a := op.NewArray(t)
	for i := range a.I {
		a.I[i] = int32(i) + 1
	}
	return a
}

// placesOf are the places of a tensor of so many that a value holds, sorted, from 0 on; nil for all.
func placesOf(a op.Array, all int64) []int32 {
	list := slices.DeleteFunc(slices.Clone(a.I), func(place int32) bool { return place == 0 })
	slices.Sort(list)
	list = slices.Compact(list)
	for k := range list {
		list[k]--
	}
	if int64(len(list)) == all {
		return nil
	}
	return list
}

// CheckBatch refuses ids in the batch that the model does not know: kernels would read
// other rows for them.
func (e *Executor) CheckBatch() error {
	for _, c := range e.batch.ids {
		for micro := range e.Plan().MicroBatches {
			raw, err := e.BatchTensor(micro, c.tensor)
			if err != nil {
				return err
			}
			if place, id := c.first(raw); place >= 0 {
				err := fmt.Errorf("%s: place %d of micro-batch %d holds %d, the model knows 0 to %d", c.tensor, place, micro, id, c.ids.Count-1)
				if c.tensor == "tokens" {
					err = fmt.Errorf("%w; do the tokenizer and the model belong together?", err)
				}
				return err
			}
		}
	}
	return nil
}

// first is the first place whose id is refused, and the id; -1 for none.
func (c idCheck) first(raw []byte) (place int, id int32) {
	at := func(i int) int32 { return int32(binary.LittleEndian.Uint32(raw[4*i:])) }
	for _, i := range c.places {
		if id := at(int(i)); c.ids.Refuses(id) {
			return int(i), id
		}
	}
	for i := 0; i < len(raw)/4 && c.places == nil; i++ {
		if id := at(i); c.ids.Refuses(id) {
			return i, id
		}
	}
	return -1, 0
}
