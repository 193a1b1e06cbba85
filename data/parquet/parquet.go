// Package parquet reads tables from Parquet files: rows of values, a row group at a time and
// of each column a page at a time, so that memory does not grow with the file.
//
// It reads what pyarrow, pandas, datasets and the Hugging Face hub write: pages of both
// versions, plain, dictionary and delta encodings, snappy, gzip and zstd. Files come from
// anywhere, so every length is checked against the file before anything is allocated.
package parquet

import (
	"fmt"
	"io"
	"slices"
)

// Table is an open file.
type Table struct {
	file   io.ReaderAt
	size   int64
	top    []*node
	leaves int
	groups []rowGroup

	budget  int64 // bytes that pages in memory may still take
	row     int64 // bytes that the values of the current row may still take
	unpack  unpacker
	scratch []byte // for headers of pages
}

// Open reads the schema of a file of so many bytes.
func Open(r io.ReaderAt, size int64) (t *Table, err error) {
	defer recoverFailure(&err)
	elements, groups := readFooter(r, size)
	t = &Table{file: r, size: size, groups: groups, budget: pageBase + pagePerByte*size}
	t.top, t.leaves = buildSchema(elements)
	for _, g := range groups {
		if len(g.columns) != t.leaves {
			panic(failf("a row group of %d columns, the schema has %d", len(g.columns), t.leaves))
		}
	}
	return t, nil
}

// Memory that the pages of all columns may take at once, and the values of a row: a number of
// bytes, and one for each byte of the file.
const (
	pageBase, pagePerByte = 32 << 20, 8
	rowBase, rowPerByte   = 16 << 20, 2
	valueBytes            = 64 // what a value counts as, beyond the bytes of a text
)

// count counts a value of the current row.
func (t *Table) count(bytes int) {
	if t.row -= int64(bytes + valueBytes); t.row < 0 {
		panic(failf("a row has more than %d bytes of values", rowBase+rowPerByte*t.size))
	}
}

// Columns are the names of the top columns.
func (t *Table) Columns() (names []string) {
	for _, n := range t.top {
		names = append(names, n.name)
	}
	return names
}

// Len is the number of rows.
func (t *Table) Len() (n int64) {
	for _, g := range t.groups {
		n += g.rows
	}
	return n
}

// Rows calls yield for every row with the values of some columns: nil, bool, int64, float64,
// string, []any, or map[string]any for a struct. It ends at the first error.
func (t *Table) Rows(columns []string, yield func(values []any) error) (err error) {
	defer recoverFailure(&err)
	var nodes []*node
	for _, name := range columns {
		i := slices.IndexFunc(t.top, func(n *node) bool { return n.name == name })
		if i < 0 {
			return fmt.Errorf("there is no column %q", name)
		}
		nodes = append(nodes, t.top[i])
	}
	values := make([]any, len(nodes))
	row := int64(0)
	for _, g := range t.groups {
		t.openGroup(g, nodes)
		for range g.rows {
			t.row = rowBase + rowPerByte*t.size
			for i, n := range nodes {
				if c := n.firstCursor(); c.rep() != 0 {
					panic(failf("row %d: column %s does not begin a row", row+1, n.name))
				}
				values[i] = n.value()
			}
			if err := yield(values); err != nil {
				return err
			}
			row++
		}
		for _, n := range nodes {
			for _, leaf := range n.leafNodes() {
				if leaf.cursor.left > 0 {
					panic(failf("column %s has more values than the row group has rows", leaf.name))
				}
				leaf.cursor.close()
			}
		}
	}
	return nil
}

// openGroup puts cursors at the start of a row group.
func (t *Table) openGroup(g rowGroup, nodes []*node) {
	for _, n := range nodes {
		for _, leaf := range n.leafNodes() {
			leaf.cursor = &cursor{table: t, node: leaf, chunk: g.columns[leaf.column], left: g.columns[leaf.column].values}
		}
	}
}

// firstCursor is that of the first leaf, whose levels say what is there.
func (n *node) firstCursor() *cursor {
	for n.column < 0 {
		if len(n.fields) == 0 {
			panic(failf("column %s is a group without fields", n.name))
		}
		n = n.fields[0]
	}
	return n.cursor
}

// value reads the next value of a field.
func (n *node) value() any {
	c := n.firstCursor()
	switch {
	case n.repetition == repeated: // a list without a group around it
		return n.items(n.content)
	case n.repetition == optional && c.def() < n.maxDef:
		n.skip()
		return nil
	}
	return n.content()
}

// content reads a value that is there.
func (n *node) content() any {
	switch {
	case n.column >= 0:
		return n.cursor.next()
	case n.isList():
		item := n.fields[0]
		if item.column < 0 && item.wrapsItem(n.name) {
			return item.items(item.fields[0].value)
		}
		return item.items(item.content)
	case n.isMap():
		return n.mapping()
	}
	object := make(map[string]any, len(n.fields))
	for _, f := range n.fields {
		n.firstCursor().table.count(len(f.name))
		object[f.name] = f.value()
	}
	return object
}

// items reads the items of a repeated field.
func (n *node) items(item func() any) []any {
	list := []any{}
	c := n.firstCursor()
	if c.def() < n.maxDef {
		n.skip()
		return list
	}
	for {
		c.table.count(0)
		list = append(list, item())
		if c.left == 0 || c.rep() < n.maxRep {
			return list
		}
		if c.rep() > n.maxRep {
			panic(failf("column %s repeats deeper than its schema", n.name))
		}
	}
}

// mapping reads a map, as an object if its keys are texts.
func (n *node) mapping() any {
	entry := n.fields[0]
	object := map[string]any{}
	entry.items(func() any {
		key, value := entry.fields[0].value(), entry.fields[1].value()
		name, ok := key.(string)
		if !ok {
			panic(failf("column %s is a map whose keys are no texts", n.name))
		}
		object[name] = value
		return nil
	})
	return object
}

// skip reads the entries that say that nothing is there, one of each leaf.
func (n *node) skip() {
	for _, leaf := range n.leafNodes() {
		leaf.cursor.advance()
	}
}
