// Package graphtest runs programs on the plain references of their ops: what a
// program means, without any backend.
package graphtest

import (
	"fmt"
	"maps"
	"slices"

	"spillway/graph"
	"spillway/op"
)

// Run carries a program out in float64, node by node, and returns all its values.
// values holds the inputs, constants excepted, and what outputs that accumulate
// start from; it is not changed.
func Run(p *graph.Program, values map[graph.Value]op.Array, args op.Args) (map[graph.Value]op.Array, error) {
	all := maps.Clone(values)
	for _, in := range p.Inputs {
		if in.Role == graph.Const {
			data, err := op.Decode(p.Type(in.Value), in.Data)
			if err != nil {
				return nil, fmt.Errorf("program %s: constant %s: %w", p.Name, in.Name, err)
			}
			all[in.Value] = data
		}
		if _, ok := all[in.Value]; !ok {
			return nil, fmt.Errorf("program %s: input %s %d %s (value %d) is not given", p.Name, in.Role, in.Index, in.Name, in.Value)
		}
	}
	for i, n := range p.Nodes {
		in, out := make([]op.Array, len(n.In)), make([]op.Array, len(n.Out))
		for k, v := range n.In {
			in[k] = all[v]
		}
		for k, v := range n.Out {
			out[k] = op.NewArray(p.Type(v))
			if n.Attr.Accumulate && slices.Contains(n.Kind.Accumulates(n.Attr), k) {
				if all[v].F == nil {
					return nil, fmt.Errorf("program %s: node %d %s adds to value %d, which holds nothing", p.Name, i, n.Kind, v)
				}
				out[k] = all[v].Clone()
			}
			all[v] = out[k]
		}
		if err := p.Call(n).Reference(in, out, args); err != nil {
			return nil, fmt.Errorf("program %s: node %d: %w", p.Name, i, err)
		}
	}
	return all, nil
}
