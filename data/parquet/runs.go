package parquet

import (
	"encoding/binary"
	"math/bits"
)

// bitsFor is how many bits a level up to max takes.
func bitsFor(max int) int { return bits.Len(uint(max)) }

// hybrid reads runs of equal numbers, and numbers packed into bits.
type hybrid struct {
	data   []byte
	width  int    // bits of a number
	run    uint64 // numbers left in the run
	packed bool
	value  uint64 // of a run of equal numbers
	bit    int    // position in packed numbers
}

func newHybrid(data []byte, width int) hybrid { return hybrid{data: data, width: width} }

func (h *hybrid) next() uint64 {
	for h.run == 0 {
		h.nextRun()
	}
	h.run--
	if !h.packed {
		return h.value
	}
	v := readBits(h.data, h.bit, h.width)
	if h.bit += h.width; h.run == 0 {
		h.data, h.bit = h.data[(h.bit+7)/8:], 0
	}
	return v
}

func (h *hybrid) nextRun() {
	head, n := binary.Uvarint(h.data)
	if n <= 0 {
		panic(failf("levels or indices of a page end early"))
	}
	h.data = h.data[n:]
	if h.packed = head&1 == 1; h.packed {
		groups := head >> 1
		if h.width > 0 && groups > uint64(len(h.data)/h.width) {
			// The last group may be cut where the page ends.
			groups = uint64((len(h.data) + h.width - 1) / h.width)
			h.data = append(h.data[:len(h.data):len(h.data)], make([]byte, h.width)...)
		}
		if h.run, h.bit = groups*8, 0; groups > 1<<40 {
			panic(failf("a page has a run of %d numbers", groups))
		}
		return
	}
	size := (h.width + 7) / 8
	if size > len(h.data) {
		panic(failf("levels or indices of a page end early"))
	}
	h.run, h.value = head>>1, 0
	for i := range size {
		h.value |= uint64(h.data[i]) << (8 * i)
	}
	h.data = h.data[size:]
}

// readBits reads a number of up to 64 bits from bit at on, the lowest first.
func readBits(data []byte, at, width int) (v uint64) {
	for got := 0; got < width; {
		i := (at + got) / 8
		if i >= len(data) {
			panic(failf("packed numbers of a page end early"))
		}
		offset := (at + got) % 8
		n := min(8-offset, width-got)
		v |= uint64(data[i]>>offset&(1<<n-1)) << got
		got += n
	}
	return v
}

// deltas reads integers that are stored as differences.
type deltas struct {
	data     []byte
	block    int // values of a block
	minis    int // parts of a block
	left     int64
	value    int64
	first    bool
	minDelta int64
	widths   []byte
	mini     int // current part
	inMini   int // values read of it
}

func newDeltas(n *node, data []byte) deltas {
	d := deltas{data: data, first: true}
	block, minis, count := d.unsigned(), d.unsigned(), d.unsigned()
	if block == 0 || block > 1<<16 || minis == 0 || minis > block || block%minis != 0 || block/minis%8 != 0 || count > 1<<40 {
		panic(failf("column %s has differences in blocks of %d values in %d parts", n.name, block, minis))
	}
	d.block, d.minis, d.left = int(block), int(minis), int64(count)
	d.value = d.signed()
	d.mini = d.minis
	return d
}

func (d *deltas) unsigned() uint64 {
	v, n := binary.Uvarint(d.data)
	if n <= 0 {
		panic(failf("differences of a page end early"))
	}
	d.data = d.data[n:]
	return v
}

func (d *deltas) signed() int64 {
	v := d.unsigned()
	return int64(v>>1) ^ -int64(v&1)
}

func (d *deltas) next() int64 {
	if d.left == 0 {
		panic(failf("a page has fewer differences than values"))
	}
	d.left--
	if d.first {
		d.first = false
		return d.value
	}
	per := d.block / d.minis
	if d.mini < d.minis && d.inMini == per {
		d.endMini()
	}
	if d.mini == d.minis {
		d.minDelta = d.signed()
		if len(d.data) < d.minis {
			panic(failf("differences of a page end early"))
		}
		d.widths, d.data, d.mini, d.inMini = d.data[:d.minis], d.data[d.minis:], 0, 0
	}
	width := int(d.widths[d.mini])
	if width > 64 {
		panic(failf("differences of %d bits", width))
	}
	delta := readBits(d.data, d.inMini*width, width)
	d.inMini++
	d.value += d.minDelta + int64(delta)
	return d.value
}

// endMini goes to the next part of a block.
func (d *deltas) endMini() {
	size := d.block / d.minis / 8 * int(d.widths[d.mini])
	if size > len(d.data) {
		panic(failf("differences of a page end early"))
	}
	d.data = d.data[size:]
	d.mini, d.inMini = d.mini+1, 0
}

// rest is what follows the differences, once all are read.
func (d *deltas) rest() []byte {
	if d.mini < d.minis && d.inMini > 0 {
		size := d.block / d.minis / 8 * int(d.widths[d.mini])
		if size > len(d.data) {
			panic(failf("differences of a page end early"))
		}
		return d.data[size:]
	}
	return d.data
}

type deltaInts struct{ deltas }

func (d *deltaInts) next() any { return d.deltas.next() }

// deltaTexts are texts with their lengths before them, and, if prefixed, how much each shares
// with the one before.
type deltaTexts struct {
	node     *node
	prefixes *deltas // nil for none
	lengths  deltas
	data     plainValues
	last     []byte
}

func newDeltaTexts(n *node, data []byte, prefixed bool) *deltaTexts {
	t := &deltaTexts{node: n}
	if prefixed {
		d := newDeltas(n, data)
		t.prefixes = &d
		data = endOf(d)
	}
	t.lengths = newDeltas(n, data)
	t.data = plainValues{node: n, data: endOf(t.lengths)}
	return t
}

// endOf is what follows differences, which are read through on a copy.
func endOf(d deltas) []byte {
	for d.left > 0 {
		d.next()
	}
	return d.rest()
}

func (t *deltaTexts) next() any {
	shared := int64(0)
	if t.prefixes != nil {
		if shared = t.prefixes.next(); shared < 0 || shared > int64(len(t.last)) {
			panic(failf("column %s has a text that shares %d bytes with one of %d", t.node.name, shared, len(t.last)))
		}
	}
	length := t.lengths.next()
	if length < 0 || length > int64(len(t.data.data)) {
		panic(failf("column %s has a text of %d bytes in the last %d bytes of a page", t.node.name, length, len(t.data.data)))
	}
	own := t.data.take(int(length))
	if t.prefixes == nil {
		return t.node.text(own)
	}
	t.last = append(t.last[:shared], own...)
	return t.node.text(t.last)
}
