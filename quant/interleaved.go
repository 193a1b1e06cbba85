package quant

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"spillway/dtype"
)

// Interleaved types are for matmuls on a CPU. Eight rows of a matrix lie together, so that the
// lanes of a vector register are eight outputs, which needs no sums across lanes and one load of
// an input for eight of them. They have the bytes of the type they are made of, in another
// order, and the same numbers. No file has them: rows are interleaved while they are read.
//
// Of types of 16 bits 32 rows lie together, four registers of sums that do not wait for each
// other: so memory is read in order, which it is read fastest in.
//
// Eight rows are stored block by block, and of each block
//
//	scales   those of the eight rows one after another: d, for q4_k d and then dmin, each f16
//	         q6_k: i8 scales of 16 times 16 elements, each of eight rows
//	         q4_k: the lower four bits of scale and minimum in a byte, 8 sub-blocks of eight rows;
//	         then the upper two bits of both in half a byte, two sub-blocks in a byte
//	codes    words of 32 bits, one for each row: eight 4-bit codes, four 8-bit codes or, behind
//	         every 16 of 4 bits, the upper two bits of 16 codes of q6_k
//
// Codes of elements 2i and 2i+1 are at the same place of the lower and the upper half of a word,
// ready for an instruction that multiplies pairs of 16-bit integers and adds the two.
var (
	Q4_0x8  = registerInterleaved(interleaver{of: Q4_0, rows: InterleavedRows, block: 32, bytes: 18, pack: packQ4_0, unpack: unpackQ4_0})
	Q8_0x8  = registerInterleaved(interleaver{of: Q8_0, rows: InterleavedRows, block: 32, bytes: 34, pack: packQ8_0, unpack: unpackQ8_0})
	Q4_Kx8  = registerInterleaved(interleaver{of: Q4_K, rows: InterleavedRows, block: 256, bytes: 144, pack: packQ4K, unpack: unpackQ4K})
	Q6_Kx8  = registerInterleaved(interleaver{of: Q6_K, rows: InterleavedRows, block: 256, bytes: 210, pack: packQ6K, unpack: unpackQ6K})
	BF16x32 = registerInterleaved(interleaver{of: dtype.BF16, rows: HalfRows, block: 8, bytes: 16, pack: packPairs, unpack: unpackPairs})
	F16x32  = registerInterleaved(interleaver{of: dtype.F16, rows: HalfRows, block: 8, bytes: 16, pack: packSingles, unpack: unpackSingles})
)

// InterleavedRows is how many rows of codes lie together, HalfRows how many of 16-bit types.
const (
	InterleavedRows = 8
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
		if l := c.interleaver; l != nil && l.of == t {
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

func packQ4_0(dst, block []byte, r int) {
	copy(dst[2*r:], block[:2])
	for c := range 4 { // eight elements each
		v := binary.LittleEndian.Uint64(block[2+c%2*8:])
		putEight(dst[16+32*c+4*r:], v>>(c/2*4)&nibbles)
	}
}

func unpackQ4_0(block, src []byte, r int) {
	copy(block[:2], src[2*r:])
	for c := range 2 {
		v := eightAt(src[16+32*c+4*r:]) | eightAt(src[16+32*(c+2)+4*r:])<<4
		binary.LittleEndian.PutUint64(block[2+8*c:], v)
	}
}

// Four 8-bit codes of a row are a word, the second at its third byte.
var byteOrder = [4]int{0, 2, 1, 3}

func packQ8_0(dst, block []byte, r int) {
	copy(dst[2*r:], block[:2])
	for i, c := range block[2:34] {
		dst[16+i/4*32+4*r+byteOrder[i%4]] = c
	}
}

func unpackQ8_0(block, src []byte, r int) {
	copy(block[:2], src[2*r:])
	for i := range block[2:34] {
		block[2+i] = src[16+i/4*32+4*r+byteOrder[i%4]]
	}
}

// Where codes of an interleaved block of q4_k begin, and the upper bits of its scales.
const (
	upperQ4K = 32 + 64
	codesQ4K = upperQ4K + 32
)

func packQ4K(dst, block []byte, r int) {
	copy(dst[2*r:], block[:2])
	copy(dst[16+2*r:], block[2:4])
	for j := range 8 {
		s, m := pairK(block[4:16], j)
		dst[32+8*j+r] = s&15 | m<<4
		upper := &dst[upperQ4K+j/2*8+r]
		if j%2 == 0 {
			*upper = s>>4 | m>>4<<2
		} else {
			*upper |= (s>>4 | m>>4<<2) << 4
		}
		for c := range 4 {
			v := binary.LittleEndian.Uint64(block[16+j/2*32+8*c:])
			putEight(dst[codesQ4K+128*j+32*c+4*r:], v>>(j%2*4)&nibbles)
		}
	}
}

func unpackQ4K(block, src []byte, r int) {
	clear(block)
	copy(block[:2], src[2*r:])
	copy(block[2:4], src[16+2*r:])
	for j := range 8 {
		low, high := src[32+8*j+r], src[upperQ4K+j/2*8+r]>>(j%2*4)
		putPairK(block[4:16], j, low&15|high&3<<4, low>>4|high>>2&3<<4)
		for c := range 4 {
			at := block[16+j/2*32+8*c:]
			binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)|eightAt(src[codesQ4K+128*j+32*c+4*r:])<<(j%2*4))
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

// Where codes of an interleaved block of q6_k begin, and the bytes of 16 elements of eight rows.
const (
	codesQ6K   = 16 + 128
	sixteenQ6K = 64 + 32
)

// upperShift is where the upper bits of element i of 16 are in their word: in the byte that its lower
// bits are in, of one of two words, so that one shift brings four of them to where they belong.
func upperShift(i int) int { return 8*(i%2*2+i%8/4) + i/8*4 + i/2%2*2 }

func packQ6K(dst, block []byte, r int) {
	copy(dst[2*r:], block[208:210])
	for j := range 16 {
		dst[16+8*j+r] = block[192+j]
		h, g, l := j/8, j/2%4, j%2*16 // of the first element
		to := dst[codesQ6K+sixteenQ6K*j:]
		for c := range 2 {
			v := binary.LittleEndian.Uint64(block[64*h+32*(g%2)+l+8*c:])
			putEight(to[32*c+4*r:], v>>(g/2*4)&nibbles)
		}
		var upper uint32
		for i := range 16 {
			upper |= uint32(block[128+32*h+l+i]>>(2*g)&3) << upperShift(i)
		}
		binary.LittleEndian.PutUint32(to[64+4*r:], upper)
	}
}

func unpackQ6K(block, src []byte, r int) {
	clear(block)
	copy(block[208:210], src[2*r:])
	for j := range 16 {
		block[192+j] = src[16+8*j+r]
		h, g, l := j/8, j/2%4, j%2*16
		from := src[codesQ6K+sixteenQ6K*j:]
		for c := range 2 {
			at := block[64*h+32*(g%2)+l+8*c:]
			binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)|eightAt(from[32*c+4*r:])<<(g/2*4))
		}
		upper := binary.LittleEndian.Uint32(from[64+4*r:])
		for i := range 16 {
			block[128+32*h+l+i] |= byte(upper>>upperShift(i)&3) << (2 * g)
		}
	}
}

// Pairs of bf16 elements are a word of their row.
func packPairs(dst, block []byte, r int) {
	for p := range 4 {
		copy(dst[4*HalfRows*p+4*r:], block[4*p:4*p+4])
	}
}

func unpackPairs(block, src []byte, r int) {
	for p := range 4 {
		copy(block[4*p:4*p+4], src[4*HalfRows*p+4*r:])
	}
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
