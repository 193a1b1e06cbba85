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

// refuses says that an id is one the model does not know.
func (c idCheck) refuses(id int32) bool {
	return (id < 0 || int64(id) >= c.ids.Count) && !(c.ids.AllowsIgnored && id == op.IgnoreIndex)
}

// moves are the ops that only put ids to other places: what reads their output reads ids of the batch.
var moves = map[op.Kind]bool{op.Reshape: true, op.Permute: true, op.Expand: true, op.Slice: true, op.Split: true, op.Concat: true}

// idChecks of the tensors of a batch, for every op that reads ids from them, as they are or moved.
func idChecks(p *plan.Plan) (list []idCheck, err error) {
	for _, program := range p.Programs {
		g := program.Graph
		for _, port := range graph.Ports(g.Inputs, graph.Batch) {
			if g.Type(port.Value).DType != dtype.I32 {
				continue
			}
			places, err := movedPlaces(g, port.Value)
			if err != nil {
				return nil, fmt.Errorf("program %s: where ids of %s go: %w", g.Name, port.Name, err)
			}
			for _, n := range g.Nodes {
				ids, ok := g.Call(n).IDs()
				if !ok {
					continue
				}
				if read, is := places[n.In[ids.Operand]]; is {
					list = addCheck(list, idCheck{port.Name, ids, read})
				}
			}
		}
	}
	return list, nil
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

// movedPlaces are the values of a program that hold ids of one of its inputs, and which places of the input these are; nil for all. They are
// found by moving the numbers of the places themselves.
func movedPlaces(g *graph.Program, input graph.Value) (map[graph.Value][]int32, error) {
	found, numbers := map[graph.Value][]int32{input: nil}, map[graph.Value]op.Array{}
	for _, n := range g.Nodes {
		if !moves[n.Kind] || !slices.ContainsFunc(n.In, func(v graph.Value) bool { _, is := found[v]; return is }) {
			continue
		}
		in, out := make([]op.Array, len(n.In)), make([]op.Array, len(n.Out))
		for i, v := range n.In {
			in[i] = numbered(g, v, numbers, v == input)
		}
		for i, v := range n.Out {
			out[i] = op.NewArray(g.Type(v))
		}
		if err := g.Call(n).Reference(in, out, op.Args{}); err != nil {
			return nil, err
		}
		for i, v := range n.Out {
			numbers[v] = out[i]
			list := slices.DeleteFunc(slices.Clone(out[i].I), func(n int32) bool { return n == 0 })
			slices.Sort(list)
			list = slices.Compact(list)
			for k := range list {
				list[k]-- // places count from 1 on the way
			}
			if int64(len(list)) == g.Type(input).Shape.Elements() {
				list = nil
			} else if len(list) == 0 {
				continue // it holds others
			}
			found[v] = list
		}
	}
	return found, nil
}

// numbered is a value whose numbers are places of the input, from 1 on, or 0 where they are something else.
func numbered(g *graph.Program, v graph.Value, numbers map[graph.Value]op.Array, input bool) op.Array {
	if a, ok := numbers[v]; ok {
		return a
	}
	a := op.NewArray(g.Type(v))
	for i := range a.I {
		if input {
			a.I[i] = int32(i) + 1
		}
	}
	numbers[v] = a
	return a
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
				return fmt.Errorf("%s: place %d of micro-batch %d holds %d, the model knows 0 to %d; do the tokenizer and the model belong together?", c.tensor, place, micro, id, c.ids.Count-1)
			}
		}
	}
	return nil
}

// first is the first place whose id is refused, and the id; -1 for none.
func (c idCheck) first(raw []byte) (place int, id int32) {
	at := func(i int) int32 { return int32(binary.LittleEndian.Uint32(raw[4*i:])) }
	for _, i := range c.places {
		if id := at(int(i)); c.refuses(id) {
			return int(i), id
		}
	}
	for i := 0; i < len(raw)/4 && c.places == nil; i++ {
		if id := at(i); c.refuses(id) {
			return i, id
		}
	}
	return -1, 0
}
