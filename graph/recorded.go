package graph

import "slices"

// Recorded are the nodes so far, with values as model code has them: gradients within a block are made from them.
func (b *Builder) Recorded() []Node {
	marked := func(list []Value) []Value {
		list = slices.Clone(list)
		for i := range list {
			list[i] |= b.block
		}
		return list
	}
	nodes := slices.Clone(b.program.Nodes)
	for i := range nodes {
		nodes[i].In, nodes[i].Out = marked(nodes[i].In), marked(nodes[i].Out)
	}
	return nodes
}
