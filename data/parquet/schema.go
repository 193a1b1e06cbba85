package parquet

import "strings"

// node is a field of the schema: a column, or a group of fields.
type node struct {
	element
	maxDef, maxRep int // levels of its values that are there
	fields         []*node
	column         int // number of the leaf; -1 for groups

	cursor *cursor // of a leaf that is read
}

// buildSchema makes a tree of the nodes of the footer and returns its top fields and the
// number of leaves.
func buildSchema(list []element) (top []*node, leaves int) {
	if len(list) == 0 {
		panic(failf("it has no schema"))
	}
	at := 0
	var build func(def, rep, depth int) *node
	build = func(def, rep, depth int) *node {
		if at >= len(list) || depth > maxDepth {
			panic(failf("its schema has %d nodes and goes on, or is nested more than %d deep", len(list), maxDepth))
		}
		n := &node{element: list[at], maxDef: def, maxRep: rep, column: -1}
		at++
		switch n.repetition {
		case optional:
			n.maxDef++
		case repeated:
			n.maxDef++
			n.maxRep++
		}
		if n.physical >= 0 && n.children == 0 {
			n.column = leaves
			leaves++
			return n
		}
		if n.children < 0 || n.children > int64(len(list)) {
			panic(failf("a group of %d fields in a schema of %d nodes", n.children, len(list)))
		}
		for range n.children {
			n.fields = append(n.fields, build(n.maxDef, n.maxRep, depth+1))
		}
		return n
	}
	root := list[0]
	at++
	if root.children < 0 || root.children > int64(len(list)) {
		panic(failf("%d columns in a schema of %d nodes", root.children, len(list)))
	}
	for range root.children {
		top = append(top, build(0, 0, 0))
	}
	return top, leaves
}

// leafNodes are the leaves below a node, in order.
func (n *node) leafNodes() (list []*node) {
	if n.column >= 0 {
		return []*node{n}
	}
	for _, f := range n.fields {
		list = append(list, f.leafNodes()...)
	}
	return list
}

// isList reports whether a group is a list, whose items are in its only field, which is
// repeated.
func (n *node) isList() bool {
	return (n.converted == convertedList || n.logical == logicalList) && n.onlyRepeated()
}

func (n *node) isMap() bool {
	return (n.converted == convertedMap || n.converted == convertedKeyValue || n.logical == logicalMap) && n.onlyRepeated() && len(n.fields[0].fields) == 2
}

func (n *node) onlyRepeated() bool { return len(n.fields) == 1 && n.fields[0].repetition == repeated }

// wrapsItem reports whether the repeated field of a list is only there to hold its items, as
// the format asks for today. Earlier it was the item itself.
func (n *node) wrapsItem(list string) bool {
	return len(n.fields) == 1 && n.name != "array" && n.name != list+"_tuple" && !strings.HasSuffix(n.name, "_tuple")
}
