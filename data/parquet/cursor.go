package parquet

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// cursor reads a column of a row group, entry by entry. An entry has a repetition level, a
// definition level, and a value if that is the column's highest.
type cursor struct {
	table *Table
	node  *node
	chunk chunk
	left  int64 // entries that have not been read

	at         int64 // bytes of the chunk read so far
	inPage     int64 // entries left in the page
	held       int64 // bytes that the page and the dictionary take
	dictHeld   int64
	dictionary *dictionary
	values     decoder
	reps, defs hybrid
	repLevel   int
	defLevel   int
	loaded     bool // the levels of the next entry
}

func (c *cursor) load() {
	if c.loaded {
		return
	}
	if c.left == 0 {
		panic(failf("column %s ends before the rows of its row group", c.node.name))
	}
	for c.inPage == 0 {
		c.nextPage()
	}
	c.repLevel, c.defLevel = 0, 0
	if c.node.maxRep > 0 {
		c.repLevel = int(c.reps.next())
	}
	if c.node.maxDef > 0 {
		c.defLevel = int(c.defs.next())
	}
	if c.repLevel > c.node.maxRep || c.defLevel > c.node.maxDef {
		panic(failf("column %s has levels %d and %d, its schema has %d and %d", c.node.name, c.repLevel, c.defLevel, c.node.maxRep, c.node.maxDef))
	}
	c.loaded = true
}

// rep and def are the levels of the next entry.
func (c *cursor) rep() int {
	c.load()
	return c.repLevel
}

func (c *cursor) def() int {
	c.load()
	return c.defLevel
}

// advance goes past an entry without a value.
func (c *cursor) advance() {
	c.load()
	if c.defLevel == c.node.maxDef {
		panic(failf("column %s has a value where its group has none", c.node.name))
	}
	c.pass()
}

func (c *cursor) pass() {
	c.loaded = false
	c.left--
	c.inPage--
}

// next reads the value of an entry.
func (c *cursor) next() any {
	c.load()
	if c.defLevel < c.node.maxDef {
		panic(failf("column %s lacks a value that its group has", c.node.name))
	}
	c.pass()
	v := c.values.next()
	if s, ok := v.(string); ok {
		c.table.count(len(s))
	}
	return v
}

// close gives the memory of the pages back.
func (c *cursor) close() {
	c.table.budget += c.held + c.dictHeld
	c.held, c.dictHeld, c.dictionary, c.values = 0, 0, nil, nil
}

// pageHeader is what comes before a page.
type pageHeader struct {
	kind                   int64
	uncompressed, stored   int64
	values                 int64
	encoding               int64
	defEncoding            int64
	repEncoding            int64
	defBytes, repBytes     int64 // of version 2
	uncompressedPage       bool  // of version 2
	second, dictionaryPage bool
}

// Kinds of pages and encodings.
const (
	pageData, pageDictionary, pageData2 = 0, 2, 3

	plain, plainDictionary, rle                = 0, 2, 3
	deltaBinary, deltaLength, deltaBytes       = 5, 6, 7
	rleDictionary                              = 8
	headerBytes                          int64 = 64 << 10 // of the longest header that is read first
)

func (c *cursor) header() pageHeader {
	if c.table.scratch == nil {
		c.table.scratch = make([]byte, headerBytes)
	}
	raw := c.table.scratch[:min(headerBytes, c.chunk.size-c.at)]
	if len(raw) == 0 {
		panic(failf("column %s ends with %d of its values missing", c.node.name, c.left))
	}
	readAt(c.table.file, raw, c.chunk.start+c.at)
	t := &thrift{data: raw}
	h := pageHeader{kind: -1}
	t.fields(func(id int64, kind byte) {
		switch id {
		case 1:
			h.kind = t.int()
		case 2:
			h.uncompressed = t.int()
		case 3:
			h.stored = t.int()
		case 5:
			t.fields(func(id int64, kind byte) { h.dataField(t, id, kind) })
		case 7:
			h.dictionaryPage = true
			t.fields(func(id int64, kind byte) {
				switch id {
				case 1:
					h.values = t.int()
				case 2:
					h.encoding = t.int()
				default:
					t.skip(kind)
				}
			})
		case 8:
			h.second = true
			t.fields(func(id int64, kind byte) { h.secondField(t, id, kind) })
		default:
			t.skip(kind)
		}
	})
	c.at += int64(t.at)
	if h.stored < 0 || h.uncompressed < 0 || h.values < 0 || h.stored > c.chunk.size-c.at {
		panic(failf("column %s has a page of %d bytes with %d values, of which %d bytes are there; is the file damaged?", c.node.name, h.stored, h.values, c.chunk.size-c.at))
	}
	return h
}

func (h *pageHeader) dataField(t *thrift, id int64, kind byte) {
	switch id {
	case 1:
		h.values = t.int()
	case 2:
		h.encoding = t.int()
	case 3:
		h.defEncoding = t.int()
	case 4:
		h.repEncoding = t.int()
	default:
		t.skip(kind)
	}
}

func (h *pageHeader) secondField(t *thrift, id int64, kind byte) {
	switch id {
	case 1:
		h.values = t.int()
	case 4:
		h.encoding = t.int()
	case 5:
		h.defBytes = t.int()
	case 6:
		h.repBytes = t.int()
	case 7:
		h.uncompressedPage = kind == thriftFalse
	default:
		t.skip(kind)
	}
}

// nextPage goes to the next page with values, and reads the dictionary before it.
func (c *cursor) nextPage() {
	h := c.header()
	c.table.budget += c.held
	c.held = 0
	raw := func(n int64) []byte {
		c.hold(n)
		data := make([]byte, n)
		readAt(c.table.file, data, c.chunk.start+c.at)
		return data
	}
	switch {
	case h.kind == pageDictionary && h.dictionaryPage:
		if c.dictionary != nil {
			panic(failf("column %s has two dictionaries in a row group", c.node.name))
		}
		data := c.uncompress(raw(h.stored), h.uncompressed)
		c.dictHeld, c.held = c.held, 0
		c.dictionary = newDictionary(c.node, data, h.values)
		c.dictHeld += c.dictionary.size()
		c.table.take(c.dictionary.size(), c.node.name)
	case h.kind == pageData:
		c.startPage(h, c.uncompress(raw(h.stored), h.uncompressed))
	case h.kind == pageData2 && h.second:
		levels := h.repBytes + h.defBytes
		if h.repBytes < 0 || h.defBytes < 0 || levels > h.stored || levels > h.uncompressed {
			panic(failf("column %s has a page of %d bytes with %d bytes of levels", c.node.name, h.stored, levels))
		}
		data := raw(h.stored)
		values := data[levels:]
		if !h.uncompressedPage {
			values = c.uncompress(values, h.uncompressed-levels)
		}
		c.reps = newHybrid(data[:h.repBytes], bitsFor(c.node.maxRep))
		c.defs = newHybrid(data[h.repBytes:levels], bitsFor(c.node.maxDef))
		c.startValues(h, values)
	}
	c.at += h.stored
}

// hold counts memory of the current page.
func (c *cursor) hold(n int64) {
	c.table.take(n, c.node.name)
	c.held += n
}

// take counts memory of pages.
func (t *Table) take(n int64, column string) {
	if n > t.budget {
		panic(failf("column %s has pages of %d bytes more than the %d that are left for a file of %d bytes; write it with smaller pages (data_page_size in pyarrow)", column, n, t.budget, t.size))
	}
	t.budget -= n
}

func (c *cursor) uncompress(data []byte, size int64) []byte {
	if c.chunk.codec == codecNone {
		return data
	}
	c.hold(size)
	return c.table.unpack.unpack(c.chunk.codec, data, int(size))
}

// startPage reads the levels of a page of version 1.
func (c *cursor) startPage(h pageHeader, data []byte) {
	levels := func(max int, encoding int64) (hybrid, []byte) {
		if max == 0 {
			return hybrid{}, data
		}
		if encoding != rle || len(data) < 4 {
			panic(failf("column %s has levels of %d bytes in encoding %d; only run lengths are read", c.node.name, len(data), encoding))
		}
		n := binary.LittleEndian.Uint32(data)
		if uint64(n) > uint64(len(data)-4) {
			panic(failf("column %s has %d bytes of levels in a page of %d", c.node.name, n, len(data)))
		}
		return newHybrid(data[4:4+n], bitsFor(max)), data[4+n:]
	}
	c.reps, data = levels(c.node.maxRep, h.repEncoding)
	c.defs, data = levels(c.node.maxDef, h.defEncoding)
	c.startValues(h, data)
}

// startValues begins to read the values of a page.
func (c *cursor) startValues(h pageHeader, data []byte) {
	c.inPage = min(h.values, c.left)
	if h.values > c.left {
		panic(failf("column %s has a page of %d values where %d are left", c.node.name, h.values, c.left))
	}
	c.values = c.decoder(h.encoding, data)
}

// decoder gives the values of a page one by one.
type decoder interface{ next() any }

func (c *cursor) decoder(encoding int64, data []byte) decoder {
	n := c.node
	switch {
	case encoding == plain:
		return &plainValues{node: n, data: data}
	case encoding == plainDictionary || encoding == rleDictionary:
		if c.dictionary == nil || len(data) == 0 {
			if len(data) == 0 {
				return noValues{n}
			}
			panic(failf("column %s has no dictionary", n.name))
		}
		if data[0] > 32 {
			panic(failf("column %s has a dictionary with indices of %d bits", n.name, data[0]))
		}
		return &dictionaryValues{c.dictionary, newHybrid(data[1:], int(data[0]))}
	case encoding == rle && n.physical == typeBoolean:
		if len(data) < 4 {
			return noValues{n}
		}
		return &runBooleans{newHybrid(data[4:], 1)}
	case encoding == deltaBinary && (n.physical == typeInt32 || n.physical == typeInt64):
		return &deltaInts{newDeltas(n, data)}
	case encoding == deltaLength && n.physical == typeBytes:
		return newDeltaTexts(n, data, false)
	case encoding == deltaBytes && n.physical == typeBytes:
		return newDeltaTexts(n, data, true)
	}
	panic(failf("column %s has type %d in encoding %d, which is not read; write it with pyarrow's defaults", n.name, n.physical, encoding))
}

// noValues is a page whose entries are all null.
type noValues struct{ node *node }

func (v noValues) next() any { panic(failf("column %s has a page without values", v.node.name)) }

// text checks that the bytes of a value are UTF-8.
func (n *node) text(b []byte) any {
	if !utf8.Valid(b) {
		panic(failf("column %s has bytes that are not UTF-8; is it an image or other binary data?", n.name))
	}
	return string(b)
}

// plainValues are values one after the other.
type plainValues struct {
	node *node
	data []byte
	bit  int // of booleans
}

func (p *plainValues) take(n int) []byte {
	if n < 0 || n > len(p.data) {
		panic(failf("column %s has a value of %d bytes in the last %d bytes of a page", p.node.name, n, len(p.data)))
	}
	v := p.data[:n]
	p.data = p.data[n:]
	return v
}

func (p *plainValues) bytes() []byte {
	return p.take(int(binary.LittleEndian.Uint32(p.take(4))))
}

func (p *plainValues) next() any {
	switch p.node.physical {
	case typeBoolean:
		if len(p.data) == 0 {
			p.take(1)
		}
		v := p.data[0]>>p.bit&1 == 1
		if p.bit++; p.bit == 8 {
			p.bit = 0
			p.take(1)
		}
		return v
	case typeInt32:
		return int64(int32(binary.LittleEndian.Uint32(p.take(4))))
	case typeInt64:
		return int64(binary.LittleEndian.Uint64(p.take(8)))
	case typeFloat:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(p.take(4))))
	case typeDouble:
		return math.Float64frombits(binary.LittleEndian.Uint64(p.take(8)))
	case typeBytes:
		return p.node.text(p.bytes())
	}
	panic(failf("column %s has values of a type that is not read (INT96 or of fixed length); convert it to numbers or texts", p.node.name))
}

// dictionary has the distinct values of a column.
type dictionary struct {
	node   *node
	data   []byte   // texts, each after its length in 4 bytes
	starts []uint32 // of the texts
	other  []any    // values that are no texts
}

func newDictionary(n *node, data []byte, count int64) *dictionary {
	d := &dictionary{node: n, data: data}
	p := &plainValues{node: n, data: data}
	for range count {
		switch n.physical {
		case typeBytes:
			d.starts = append(d.starts, uint32(len(data)-len(p.data)))
			p.bytes()
		case typeBoolean:
			panic(failf("column %s has a dictionary of two truths", n.name))
		default:
			d.other = append(d.other, p.next())
		}
	}
	return d
}

// size is about how many bytes of memory it takes.
func (d *dictionary) size() int64 {
	return int64(4*cap(d.starts) + 24*cap(d.other))
}

func (d *dictionary) value(i uint64) any {
	switch {
	case i < uint64(len(d.other)):
		return d.other[i]
	case i < uint64(len(d.starts)):
		p := plainValues{node: d.node, data: d.data[d.starts[i]:]}
		return d.node.text(p.bytes())
	}
	panic(failf("column %s has value %d of a dictionary of %d", d.node.name, i, max(len(d.starts), len(d.other))))
}

type dictionaryValues struct {
	dictionary *dictionary
	indices    hybrid
}

func (d *dictionaryValues) next() any { return d.dictionary.value(d.indices.next()) }

type runBooleans struct{ bits hybrid }

func (r *runBooleans) next() any { return r.bits.next() == 1 }
