package parquet

import "encoding/binary"

// thrift reads values of Thrift's compact protocol, in which Parquet writes its footer and
// the headers of its pages.
type thrift struct {
	data []byte
	at   int
}

// Types of fields in the protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

func (t *thrift) byte() byte {
	if t.at >= len(t.data) {
		panic(failf("the footer or the header of a page ends early"))
	}
	t.at++
	return t.data[t.at-1]
}

func (t *thrift) unsigned() uint64 {
	v, n := binary.Uvarint(t.data[t.at:])
	if n <= 0 {
		panic(failf("a number in the footer or the header of a page is cut short"))
	}
	t.at += n
	return v
}

func (t *thrift) int() int64 {
	v := t.unsigned()
	return int64(v>>1) ^ -int64(v&1)
}

// bytes reads a length and as many bytes.
func (t *thrift) bytes() []byte {
	n := t.unsigned()
	if n > uint64(len(t.data)-t.at) {
		panic(failf("a text of %d bytes in the footer, which has only %d more", n, len(t.data)-t.at))
	}
	t.at += int(n)
	return t.data[t.at-int(n) : t.at]
}

// fields calls field with the number and type of every field of a struct. It must read the
// value, or skip it.
func (t *thrift) fields(field func(id int64, kind byte)) {
	id := int64(0)
	for {
		head := t.byte()
		if head == 0 {
			return
		}
		if delta := head >> 4; delta != 0 {
			id += int64(delta)
		} else {
			id = t.int()
		}
		field(id, head&15)
	}
}

// list calls item for every item of a list.
func (t *thrift) list(kind byte, item func(kind byte)) {
	if kind != thriftList && kind != thriftSet {
		panic(failf("a list is missing in the footer"))
	}
	head := t.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = t.unsigned()
	}
	if n > uint64(len(t.data)-t.at) { // an item has at least a byte
		panic(failf("a list of %d items in the footer, which has only %d more bytes", n, len(t.data)-t.at))
	}
	for range n {
		item(head & 15)
	}
}

// skip skips a value.
func (t *thrift) skip(kind byte) { t.skipDeep(kind, 0) }

func (t *thrift) skipDeep(kind byte, depth int) {
	if depth > maxDepth {
		panic(failf("the footer is nested more than %d deep", maxDepth))
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		t.byte()
	case thriftI16, thriftI32, thriftI64:
		t.unsigned()
	case thriftDouble:
		for range 8 {
			t.byte()
		}
	case thriftBinary:
		t.bytes()
	case thriftList, thriftSet:
		t.list(kind, func(kind byte) {
			if kind == thriftTrue || kind == thriftFalse {
				t.byte() // in lists they take a byte
				return
			}
			t.skipDeep(kind, depth+1)
		})
	case thriftMap:
		n := t.unsigned()
		if n == 0 {
			return
		}
		kinds := t.byte()
		if n > uint64(len(t.data)-t.at) {
			panic(failf("a map of %d entries in the footer, which has only %d more bytes", n, len(t.data)-t.at))
		}
		for range n {
			t.skipDeep(kinds>>4, depth+1)
			t.skipDeep(kinds&15, depth+1)
		}
	case thriftStruct:
		t.fields(func(_ int64, kind byte) { t.skipDeep(kind, depth+1) })
	default:
		panic(failf("a value of unknown type %d in the footer", kind))
	}
}
