package quant

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"spillway/dtype"
)

// Interleaved types are for matmuls on a CPU. Sixteen rows of a matrix lie together, so that the
// lanes of two vector registers are sixteen outputs, which needs no sums across lanes and one load of
// an input for all of them. They have the bytes of the type they are made of, in another
// order, and the same numbers. No file has them: rows are interleaved while they are read.
//
// Of types of 16 bits 32 rows lie together, four registers of sums that do not wait for each
// other: so memory is read in order, which it is read fastest in.
//
// Sixteen rows are stored block by block, and of each block
//
//	scales   of the first eight rows, then of the others, row after row: d, for q4_k d and then dmin, each f16
//	         q6_k: i8 scales of 16 times 16 elements, each of eight rows
//	         q4_k: the lower four bits of scale and minimum in a byte, 8 sub-blocks of eight rows;
//	         then the upper two bits of both in half a byte, two sub-blocks in a byte
//	codes    words of 32 bits, one for each row: eight 4-bit codes or four 8-bit codes; of q6_k three
//	         words for 16 codes: four in the lower six bits of the bytes of each, four in their upper two
//
// Codes of elements 2i and 2i+1 are at the same place of the lower and the upper half of a word,
// ready for an instruction that multiplies pairs of 16-bit integers and adds the two.
var (
	Q4_0x16 = registerInterleaved(interleaver{of: Q4_0, rows: InterleavedRows, block: 32, bytes: 18, pack: packQ4_0, unpack: unpackQ4_0})
	Q8_0x16 = registerInterleaved(interleaver{of: Q8_0, rows: InterleavedRows, block: 32, bytes: 34, pack: packQ8_0, unpack: unpackQ8_0})
	Q4_Kx16 = registerInterleaved(interleaver{of: Q4_K, rows: InterleavedRows, block: 256, bytes: 144, pack: packQ4K, unpack: unpackQ4K})
	Q6_Kx16 = registerInterleaved(interleaver{of: Q6_K, rows: InterleavedRows, block: 256, bytes: 210, pack: packQ6K, unpack: unpackQ6K})
	BF16x32 = registerInterleaved(interleaver{of: dtype.BF16, rows: HalfRows, block: 8, bytes: 16, pack: packPairs, unpack: unpackPairs})
	F16x32  = registerInterleaved(interleaver{of: dtype.F16, rows: HalfRows, block: 8, bytes: 16, pack: packSingles, unpack: unpackSingles})
)

// InterleavedRows is how many rows of codes lie together, HalfRows how many of 16-bit types.
const (
	InterleavedRows = 16
	HalfRows        = 32
)

// interleaver is how blocks of some rows lie together.
type interleaver struct {
	of           dtype.Type
	rows         int // that lie together
	block, bytes int // of a block of one row: elements, and bytes
	// pack writes row r of so many blocks, unpack reads it.
	pack   func(dst, block []byte, r int)
	unpack func(block, src []byte, r int)
	// compressed: only some matrices can be held so, see CompressedBF16.
	compressed bool
	// whole interleaves all of a matrix, where its scales are apart from its codes.
	whole func(rows, cols int64, from io.ReaderAt) io.Reader
}

func registerInterleaved(l interleaver) dtype.Type {
	name := fmt.Sprintf("%vx%d", l.of, l.rows)
	return Register(Codec{
		Name: name, Title: fmt.Sprintf("%v with %d rows together", l.of, l.rows), Block: l.block, interleaver: &l,
		Bytes:  func(n int64) int64 { return l.of.Bytes(n) },
		Encode: l.encode, Decode: l.decode, Stream: l.stream,
	})
}

// Interleaved is the type that holds a matrix of a type with rows together; ok is false
// where there is none, or the matrix has no such shape.
func Interleaved(t dtype.Type, rows, cols int64) (of dtype.Type, ok bool) {
	for _, c := range codecs {
		if l := c.interleaver; l != nil && l.of == t && !l.compressed {
			return c.Type, rows > 0 && rows%int64(l.rows) == 0 && cols > 0 && cols%int64(l.block) == 0
		}
	}
	return dtype.Invalid, false
}

// InterleavedOf is the type whose rows a type has together, Invalid where t is no such type.
func InterleavedOf(t dtype.Type) dtype.Type {
	if c := Of(t); c != nil && c.interleaver != nil {
		return c.interleaver.of
	}
	return dtype.Invalid
}

// Interleave reads as a matrix in an interleaved type, out of the storage of the type that it is
// made of.
func Interleave(t dtype.Type, rows, cols int64, from io.ReaderAt) io.Reader {
	l := Of(t).interleaver
	if l.whole != nil {
		return l.whole(rows, cols, from)
	}
	together := l.rows * l.rowBytes(int(cols))
	return &parallelReader{parts: rows / int64(l.rows), make: func(part int64, b *buffer) error {
		b.bytes = slices.Grow(b.bytes[:0], 2*together)[:2*together]
		plain := b.bytes[together:]
		if _, err := from.ReadAt(plain, part*int64(together)); err != nil && err != io.EOF {
			return err
		}
		b.bytes = b.bytes[:together]
		l.interleave(b.bytes, plain, int(cols))
		return nil
	}}
}

func (l *interleaver) rowBytes(cols int) int { return cols / l.block * l.bytes }

// interleave writes rows together.
func (l *interleaver) interleave(dst, rows []byte, cols int) {
	size := l.rowBytes(cols)
	for at := 0; at < size; at += l.bytes {
		for r := range l.rows {
			l.pack(dst[l.rows*at:][:l.rows*l.bytes], rows[r*size+at:][:l.bytes], r)
		}
	}
}

// stream encodes rows that lie together at a time.
func (l *interleaver) stream(rows, cols int64, from ReadFunc) io.Reader {
	return encodeParts(rows*cols, int64(l.rows)*max(cols, 1), from, l.of.Bytes, func(first int64, b *buffer) error {
		if bad := firstNonFinite(b.numbers); bad >= 0 && l.of.Block() {
			return fmt.Errorf("element %d is %v, which %v cannot hold", first+int64(bad), b.numbers[bad], l.of)
		}
		return l.encode(b.bytes, b.numbers, int(cols))
	})
}

func (l *interleaver) encode(dst []byte, src []float32, cols int) error {
	if cols%l.block != 0 || len(src)%(l.rows*max(cols, 1)) != 0 {
		return fmt.Errorf("%d numbers in rows of %d: %d rows of whole blocks of %d lie together", len(src), cols, l.rows, l.block)
	}
	n := l.rows * cols
	rows := make([]byte, l.of.Bytes(int64(n)))
	for ; len(src) > 0; src, dst = src[n:], dst[len(rows):] {
		if !l.of.Block() {
			l.of.Encode(rows, src[:n])
		} else if err := Of(l.of).Encode(rows, src[:n], cols); err != nil {
			return err
		}
		l.interleave(dst, rows, cols)
	}
	return nil
}

// decode takes blocks out one at a time.
func (l *interleaver) decode(dst []float32, storage []byte, _, cols, first int) {
	var whole [maxGGUFBlock]float32
	var raw [maxGGUFBlock]byte
	block := raw[:l.bytes]
	for len(dst) > 0 {
		row, col := first/cols, first%cols
		at := row/l.rows*l.rows*l.rowBytes(cols) + col/l.block*l.bytes*l.rows
		l.unpack(block, storage[at:][:l.bytes*l.rows], row%l.rows)
		if l.of.Block() {
			Of(l.of).Decode(whole[:l.block], block, l.block, l.block, 0)
		} else {
			l.of.Decode(whole[:l.block], block)
		}
		n := copy(dst, whole[col%l.block:l.block])
		dst, first = dst[n:], first+n
	}
}

// Eight 4-bit codes of a row are a word. Those of elements 0 2 4 6 are its lower half, those of
// elements 1 3 5 7 its upper half.

// putEight packs eight codes, each the lower half of a byte of v.
func putEight(dst []byte, v uint64) {
	const words = 0x000f000f000f000f
	even, odd := v&words, v>>8&words
	even |= even >> 12
	odd |= odd >> 12
	binary.LittleEndian.PutUint32(dst, uint32(even&0xff|even>>32&0xff<<8|odd&0xff<<16|odd>>32&0xff<<24))
}

// eightAt gives them back, a byte each.
func eightAt(src []byte) uint64 {
	w := uint64(binary.LittleEndian.Uint32(src))
	spread := func(h uint64) uint64 { return h&15 | h>>4&15<<16 | h>>8&15<<32 | h>>12&15<<48 }
	return spread(w&0xffff) | spread(w>>16)<<8
}

const nibbles = 0x0f0f0f0f0f0f0f0f

// partsOf is where row r of sixteen has its scales, of which eight rows have so many bytes, and its codes: words that
// are 64 bytes apart. lane is the number of the row among the eight.
func partsOf(block []byte, r, scales int) (own, codes []byte, lane int) {
	half, lane := r/8, r%8
	return block[half*scales:], block[2*scales+32*half+4*lane:], lane
}

func packQ4_0(dst, block []byte, r int) {
	own, codes, lane := partsOf(dst, r, 16)
	copy(own[2*lane:], block[:2])
	for c := range 4 { // eight elements each
		v := binary.LittleEndian.Uint64(block[2+c%2*8:])
		putEight(codes[64*c:], v>>(c/2*4)&nibbles)
	}
}

func unpackQ4_0(block, src []byte, r int) {
	own, codes, lane := partsOf(src, r, 16)
	copy(block[:2], own[2*lane:])
	for c := range 2 {
		v := eightAt(codes[64*c:]) | eightAt(codes[64*(c+2):])<<4
		binary.LittleEndian.PutUint64(block[2+8*c:], v)
	}
}

// Four 8-bit codes of a row are a word, the second at its third byte.
var byteOrder = [4]int{0, 2, 1, 3}

func packQ8_0(dst, block []byte, r int) {
	own, codes, lane := partsOf(dst, r, 16)
	copy(own[2*lane:], block[:2])
	for i, c := range block[2:34] {
		codes[i/4*64+byteOrder[i%4]] = c
	}
}

func unpackQ8_0(block, src []byte, r int) {
	own, codes, lane := partsOf(src, r, 16)
	copy(block[:2], own[2*lane:])
	for i := range block[2:34] {
		block[2+i] = codes[i/4*64+byteOrder[i%4]]
	}
}

// Where eight rows of q4_k have the upper bits of their scales, and how many bytes of scales.
const (
	upperQ4K  = 32 + 64
	scalesQ4K = upperQ4K + 32
)

func packQ4K(dst, block []byte, r int) {
	own, codes, lane := partsOf(dst, r, scalesQ4K)
	copy(own[2*lane:], block[:2])
	copy(own[16+2*lane:], block[2:4])
	for j := range 8 {
		s, m := pairK(block[4:16], j)
		own[32+8*j+lane] = s&15 | m<<4
		upper := &own[upperQ4K+j/2*8+lane]
		if j%2 == 0 {
			*upper = s>>4 | m>>4<<2
		} else {
			*upper |= (s>>4 | m>>4<<2) << 4
		}
		for c := range 4 {
			v := binary.LittleEndian.Uint64(block[16+j/2*32+8*c:])
			putEight(codes[64*(4*j+c):], v>>(j%2*4)&nibbles)
		}
	}
}

func unpackQ4K(block, src []byte, r int) {
	clear(block)
	own, codes, lane := partsOf(src, r, scalesQ4K)
	copy(block[:2], own[2*lane:])
	copy(block[2:4], own[16+2*lane:])
	for j := range 8 {
		low, high := own[32+8*j+lane], own[upperQ4K+j/2*8+lane]>>(j%2*4)
		putPairK(block[4:16], j, low&15|high&3<<4, low>>4|high>>2&3<<4)
		for c := range 4 {
			at := block[16+j/2*32+8*c:]
			binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)|eightAt(codes[64*(4*j+c):])<<(j%2*4))
		}
	}
}

// putPairK adds the j-th pair that pairK reads to bytes that were zero.
func putPairK(b []byte, j int, scale, least byte) {
	if j < 4 {
		b[j] |= scale
		b[j+4] |= least
		return
	}
	b[j+4] |= scale&15 | least<<4
	b[j-4] |= scale >> 4 << 6
	b[j] |= least >> 4 << 6
}

// scalesQ6K is how many bytes of scales eight rows of q6_k have.
const scalesQ6K = 16 + 128

// Sixteen codes of 6 bits are four words, of which three are stored: the fourth has two bits in the upper two of each byte
// of the others. Elements are in the bytes that their lower bits would be in, of codes of 4 bits.

// wordsOf gives eight bytes as two words, of elements 0 4 1 5 and 2 6 3 7; bytesOf gives them back.
func wordsOf(v uint64) (a, b uint32) {
	spread := func(v uint64) uint32 { return uint32(v&0xff | v&0xff00<<8) }
	return spread(v) | spread(v>>32)<<8, spread(v>>16) | spread(v>>48)<<8
}

func bytesOf(a, b uint32) uint64 {
	join := func(w uint32) uint64 { return uint64(w&0xff | w>>8&0xff00) }
	return join(a) | join(a>>8)<<32 | join(b)<<16 | join(b>>8)<<48
}

const (
	threes  = 0x0303030303030303
	sixBits = 0x3f3f3f3f
)

func packQ6K(dst, block []byte, r int) {
	own, codes, lane := partsOf(dst, r, scalesQ6K)
	copy(own[2*lane:], block[208:210])
	for j := range 16 {
		own[16+8*j+lane] = block[192+j]
		h, g, l := j/8, j/2%4, j%2*16 // of the first element
		var w [4]uint32
		for c := range 2 {
			lower := binary.LittleEndian.Uint64(block[64*h+32*(g%2)+l+8*c:]) >> (g / 2 * 4) & nibbles
			upper := binary.LittleEndian.Uint64(block[128+32*h+l+8*c:]) >> (2 * g) & threes
			w[2*c], w[2*c+1] = wordsOf(lower | upper<<4)
		}
		for k := range 3 {
			binary.LittleEndian.PutUint32(codes[64*(3*j+k):], w[k]|w[3]>>(2*k)&(threes>>32)<<6)
		}
	}
}

func unpackQ6K(block, src []byte, r int) {
	clear(block)
	own, codes, lane := partsOf(src, r, scalesQ6K)
	copy(block[208:210], own[2*lane:])
	for j := range 16 {
		block[192+j] = own[16+8*j+lane]
		h, g, l := j/8, j/2%4, j%2*16
		var w [4]uint32
		for k := range 3 {
			stored := binary.LittleEndian.Uint32(codes[64*(3*j+k):])
			w[k] = stored & sixBits
			w[3] |= stored >> 6 & (threes >> 32) << (2 * k)
		}
		for c := range 2 {
			v := bytesOf(w[2*c], w[2*c+1])
			lower, upper := block[64*h+32*(g%2)+l+8*c:], block[128+32*h+l+8*c:]
			binary.LittleEndian.PutUint64(lower, binary.LittleEndian.Uint64(lower)|v&nibbles<<(g/2*4))
			binary.LittleEndian.PutUint64(upper, binary.LittleEndian.Uint64(upper)|v>>4&threes<<(2*g))
		}
	}
}

// Pairs of bf16 elements are a word of their row, the first in its upper half: an instruction that multiplies
// pairs, VDPBF16PS, begins with that.
func packPairs(dst, block []byte, r int) {
	for p := range 4 {
		putSwapped(dst[4*HalfRows*p+4*r:], block[4*p:])
	}
}

func unpackPairs(block, src []byte, r int) {
	for p := range 4 {
		putSwapped(block[4*p:], src[4*HalfRows*p+4*r:])
	}
}

// putSwapped copies a word, with its halves swapped.
func putSwapped(dst, src []byte) {
	binary.LittleEndian.PutUint32(dst, bits.RotateLeft32(binary.LittleEndian.Uint32(src), 16))
}

// Elements of f16 lie one by one.
func packSingles(dst, block []byte, r int) {
	for i := range 8 {
		copy(dst[2*HalfRows*i+2*r:], block[2*i:2*i+2])
	}
}

func unpackSingles(block, src []byte, r int) {
	for i := range 8 {
		copy(block[2*i:2*i+2], src[2*HalfRows*i+2*r:])
	}
}
