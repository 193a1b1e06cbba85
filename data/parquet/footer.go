package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// magic begins and ends a file.
const magic = "PAR1"

// Limits of what is read, far above what files have.
const (
	maxFooter = 64 << 20 // bytes
	maxDepth  = 64       // of schemas and of values in the footer
)

// failure is what reading panics with when a file is wrong; the package's functions return
// the error.
type failure struct{ err error }

func failf(format string, args ...any) failure { return failure{fmt.Errorf(format, args...)} }

func recoverFailure(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = f.err
	default:
		panic(f)
	}
}

// readFooter reads what the end of a file says of it.
func readFooter(r io.ReaderAt, size int64) (elements []element, groups []rowGroup) {
	if size < 12 {
		panic(failf("%d bytes are no Parquet file", size))
	}
	var tail [8]byte
	readAt(r, tail[:], size-8)
	switch string(tail[4:]) {
	case magic:
	case "PARE":
		panic(failf("it is encrypted; write it without encryption"))
	default:
		panic(failf("it is no Parquet file: it ends with %q, not %q; is it cut short?", tail[4:], magic))
	}
	n := int64(binary.LittleEndian.Uint32(tail[:4]))
	if n > size-12 || n > maxFooter {
		panic(failf("its footer has %d bytes, the file %d; is it damaged?", n, size))
	}
	data := make([]byte, n)
	readAt(r, data, size-8-n)
	t := &thrift{data: data}
	t.fields(func(id int64, kind byte) {
		switch id {
		case 2:
			t.list(kind, func(byte) { elements = append(elements, readElement(t)) })
		case 4:
			t.list(kind, func(byte) { groups = append(groups, readRowGroup(t, size)) })
		default:
			t.skip(kind)
		}
	})
	return elements, groups
}

func readAt(r io.ReaderAt, p []byte, at int64) {
	if n, err := r.ReadAt(p, at); n < len(p) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		panic(failure{fmt.Errorf("reading %d bytes at %d: %w", len(p), at, err)})
	}
}

// element is a node of the schema as the footer has it: the nodes stand depth first.
type element struct {
	name       string
	physical   int64 // type; -1 for groups
	repetition int64
	children   int64
	converted  int64 // -1 for none
	logical    int64 // number of the logical type; 0 for none
	width      int64 // of fixed-length values
}

// Numbers of the format.
const (
	required, optional, repeated = 0, 1, 2

	typeBoolean, typeInt32, typeInt64, typeInt96, typeFloat, typeDouble, typeBytes, typeFixed = 0, 1, 2, 3, 4, 5, 6, 7

	convertedMap, convertedKeyValue, convertedList = 1, 2, 3
	logicalMap, logicalList                        = 2, 3
)

func readElement(t *thrift) element {
	e := element{physical: -1, converted: -1}
	t.fields(func(id int64, kind byte) {
		switch id {
		case 1:
			e.physical = t.int()
		case 2:
			e.width = t.int()
		case 3:
			e.repetition = t.int()
		case 4:
			e.name = string(t.bytes())
		case 5:
			e.children = t.int()
		case 6:
			e.converted = t.int()
		case 10: // a union: its field says which
			t.fields(func(id int64, kind byte) {
				e.logical = id
				t.skip(kind)
			})
		default:
			t.skip(kind)
		}
	})
	return e
}

// rowGroup is a number of rows, whose columns lie one after the other.
type rowGroup struct {
	rows    int64
	columns []chunk
}

// chunk is where a column of a row group lies.
type chunk struct {
	codec  int64
	values int64
	start  int64 // of its first page
	size   int64 // of all pages, in bytes
}

func readRowGroup(t *thrift, size int64) (g rowGroup) {
	t.fields(func(id int64, kind byte) {
		switch id {
		case 1:
			t.list(kind, func(byte) { g.columns = append(g.columns, readChunk(t, size)) })
		case 3:
			g.rows = t.int()
		default:
			t.skip(kind)
		}
	})
	if g.rows < 0 {
		panic(failf("a row group of %d rows", g.rows))
	}
	return g
}

func readChunk(t *thrift, size int64) (c chunk) {
	known := false
	t.fields(func(id int64, kind byte) {
		switch id {
		case 1:
			if name := t.bytes(); len(name) > 0 {
				panic(failf("a column is in another file, %.80q; columns are read from the file itself", name))
			}
		case 3:
			c, known = readColumnMeta(t), true
		default:
			t.skip(kind)
		}
	})
	switch {
	case !known:
		panic(failf("a column without a description; is it encrypted?"))
	case c.start < 4 || c.size < 0 || c.start > size || c.size > size-c.start || c.values < 0:
		panic(failf("a column of %d bytes at byte %d with %d values, in a file of %d bytes; is it cut short?", c.size, c.start, c.values, size))
	}
	return c
}

func readColumnMeta(t *thrift) (c chunk) {
	var data, dictionary int64
	t.fields(func(id int64, kind byte) {
		switch id {
		case 4:
			c.codec = t.int()
		case 5:
			c.values = t.int()
		case 7:
			c.size = t.int()
		case 9:
			data = t.int()
		case 11:
			dictionary = t.int()
		default:
			t.skip(kind)
		}
	})
	c.start = data
	if dictionary > 0 && dictionary < data {
		c.start = dictionary
	}
	return c
}
