package quant

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sync"

	"spillway/dtype"
)

// CompressedBF16 holds bf16 weights in 12 bits each, and every bit of them: a matmul that reads it from memory reads a
// quarter less. Trained weights have few exponents, so the upper byte of nearly every one, its sign and seven bits of its
// exponent, is one of 15. The lower byte is stored as it is, the upper one as a code of four bits, and the upper bytes of the
// few others as they are.
//
// It is for matmuls on a CPU, as the interleaved types are: 32 rows lie together, in pairs of K as in BF16x32. No file has it.
// The storage of a matrix of n elements is
//
//	codes    three halves of n bytes. Of 32 rows, four elements of K each are 192 bytes: the lower bytes of the first pair of
//	         K, those of the second, and the codes of both, of the first in the lower half of each byte. See CompressedPlace.
//	offsets  how many escapes come before a tile, u32, for tiles of 32 rows by 32 elements of K, in the order of the codes
//	table    the upper bytes that codes 0 to 14 stand for; bytes 15 to 63 are zero
//	escapes  the upper bytes that have the code 15, in the order of the codes, and zeros after them: n/128 bytes of room, and
//	         64 more, so that whole registers can be read
//
// The room is fixed, so that a plan knows the storage before the weights. A matrix that needs more, or has no such shape, stays
// as it is.
var CompressedBF16 = Register(Codec{
	Name: "bf16x32c", Title: "bf16 in 12 bits, exactly, with 32 rows together", Block: CompressedTile,
	interleaver: &interleaver{of: dtype.BF16, rows: HalfRows, block: CompressedTile, compressed: true, whole: compressHalves},
	Bytes:       compressedBytes, Encode: encodeCompressed, Decode: decodeCompressed, Stream: compressNumbers,
})

// Sizes of CompressedBF16.
const (
	CompressedTile  = 32            // elements of K that share an offset
	CompressedGroup = 6 * HalfRows  // bytes of four elements of K of the rows that lie together
	CompressedCode  = 15            // of an escape
	pairBytes       = 2 * HalfRows  // of lower bytes of a pair of K
	tileElements    = 32 * HalfRows // of K by rows
	tileBytes       = 8 * CompressedGroup
	tableBytes      = 64
	escapePadding   = 64
	CompressedRoom  = 128 // elements for each byte of room
)

func compressedBytes(n int64) int64 {
	return n/2*3 + n/tileElements*4 + tableBytes + n/CompressedRoom + escapePadding
}

// Compressed is where the parts of a matrix in CompressedBF16 are in its storage.
type Compressed struct {
	Codes   []byte
	Offsets []byte // u32, little endian
	Table   []byte // 64 bytes
	Escapes []byte // with what may be read behind the room
}

// ViewCompressed finds the parts of a matrix of n elements.
func ViewCompressed(n int, storage []byte) Compressed {
	take := func(n int) []byte {
		part := storage[:n:n]
		storage = storage[n:]
		return part
	}
	return Compressed{Codes: take(n / 2 * 3), Offsets: take(n / tileElements * 4), Table: take(tableBytes), Escapes: take(n/CompressedRoom + escapePadding)}
}

// Room is how many escapes there can be.
func (c *Compressed) Room() int { return len(c.Escapes) - escapePadding }

// Escape is how many escapes come before group number of a strip of 32 rows with so many groups, each of four elements of K. It is never more than there is room for,
// whatever the storage holds.
func (c *Compressed) Escape(strip, group, groups int) int {
	first := group / 8 * 8
	at := int(binary.LittleEndian.Uint32(c.Offsets[(strip*groups+first)/8*4:]))
	for ; first < group; first++ {
		codes := c.Codes[(strip*groups+first)*CompressedGroup+2*pairBytes:][:pairBytes]
		for ; len(codes) > 0; codes = codes[8:] {
			at += escapesIn(binary.LittleEndian.Uint64(codes))
		}
	}
	return min(at, c.Room())
}

// escapesIn counts the codes of escapes among sixteen.
func escapesIn(v uint64) int {
	v &= v >> 2
	v &= v >> 1
	return bits.OnesCount64(v & 0x1111111111111111)
}

// CompressedPlace is where an element is among the 64 of a pair of K: of row r of those that lie together, the first or the second of
// the pair. Two instructions of AVX-512 put lower and upper bytes together, each the eight lower or upper ones of every 16; this
// order makes them the words of BF16x32, of rows 0 to 15 and 16 to 31.
func CompressedPlace(r, second int) int { return r%16/4*16 + r/16*8 + r%4*2 + 1 - second }

// UpperBytes counts the upper bytes of bf16 numbers.
type UpperBytes [256]int64

// Add counts those of stored numbers, little endian.
func (u *UpperBytes) Add(halves []byte) {
	var counts [4][256]uint32 // apart, so that an addition does not wait for the one before
	for len(halves) > 0 {
		part := halves[:min(len(halves), 1<<30)]
		halves = halves[len(part):]
		for ; len(part) >= 8; part = part[8:] {
			v := binary.LittleEndian.Uint64(part)
			counts[0][byte(v>>8)]++
			counts[1][byte(v>>24)]++
			counts[2][byte(v>>40)]++
			counts[3][byte(v>>56)]++
		}
		for ; len(part) >= 2; part = part[2:] {
			counts[0][part[1]]++
		}
		for i := range u {
			for c := range counts {
				u[i] += int64(counts[c][i])
				counts[c][i] = 0
			}
		}
	}
}

// AddNumbers counts those that numbers have once they are rounded.
func (u *UpperBytes) AddNumbers(numbers []float32) {
	for _, f := range numbers {
		u[dtype.ToBF16(f)>>8]++
	}
}

// Join adds other counts.
func (u *UpperBytes) Join(other *UpperBytes) {
	for i, n := range other {
		u[i] += n
	}
}

// table has the 15 commonest upper bytes, and how many numbers have another one. The codes of all bytes are
// CompressedCode where a byte is not in it.
func (u *UpperBytes) table() (table [tableBytes]byte, codes [256]byte, escapes int64) {
	order := make([]int, len(u))
	for i := range order {
		order[i], codes[i] = i, CompressedCode
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(1, max(-1, u[b]-u[a]))) })
	for code, b := range order[:CompressedCode] {
		table[code], codes[b] = byte(b), byte(code)
	}
	for _, b := range order[CompressedCode:] {
		escapes += u[b]
	}
	return table, codes, escapes
}

// Escapes is how many of the numbers have none of the 15 commonest upper bytes.
func (u *UpperBytes) Escapes() int64 {
	_, _, escapes := u.table()
	return escapes
}

// RoomError says that a matrix has more escapes than CompressedBF16 has room for: hold it as bf16.
type RoomError struct{ Escapes, Room, Elements int }

func (e *RoomError) Error() string {
	return fmt.Sprintf("%d of %d weights have none of the 15 commonest upper bytes, and there is room for %d: hold them as bf16", e.Escapes, e.Elements, e.Room)
}

// CompressedShape says whether a matrix of this shape can be held as CompressedBF16.
func CompressedShape(rows, cols int64) bool {
	return rows > 0 && cols > 0 && rows%HalfRows == 0 && cols%CompressedTile == 0
}

func encodeCompressed(dst []byte, src []float32, cols int) error {
	if cols == 0 || len(src)%cols != 0 || !CompressedShape(int64(len(src)/cols), int64(cols)) {
		return fmt.Errorf("%d numbers in rows of %d: %d rows of whole blocks of %d lie together", len(src), cols, HalfRows, CompressedTile)
	}
	r := compressNumbers(int64(len(src)/cols), int64(cols), func(first int64, to []float32) error {
		copy(to, src[first:])
		return nil
	})
	_, err := io.ReadFull(r, dst)
	return err
}

// compressNumbers compresses numbers that are pulled twice: to count, and to encode.
func compressNumbers(rows, cols int64, from ReadFunc) io.Reader {
	return compress(rows, cols, func(first int64, halves []byte, b *buffer) error {
		b.numbers = slices.Grow(b.numbers[:0], len(halves)/2)[:len(halves)/2]
		if err := from(first, b.numbers); err != nil {
			return err
		}
		dtype.BF16.Encode(halves, b.numbers)
		return nil
	})
}

// compressHalves compresses a matrix out of its storage in bf16.
func compressHalves(rows, cols int64, from io.ReaderAt) io.Reader {
	return compress(rows, cols, func(first int64, halves []byte, _ *buffer) error {
		_, err := from.ReadAt(halves, 2*first)
		if err == io.EOF {
			err = nil
		}
		return err
	})
}

// compress reads as a compressed matrix. Numbers are read as halves, from the first-th on, twice.
func compress(rows, cols int64, read func(first int64, halves []byte, b *buffer) error) io.Reader {
	c := &compressor{rows: rows, cols: int(cols), read: read, escapes: make([][]byte, rows/HalfRows), offsets: make([][]uint32, rows/HalfRows)}
	return io.MultiReader(&laterReader{make: c.codes}, &tailReader{tail: c.tail})
}

// compressor encodes a matrix, 32 rows at a time.
type compressor struct {
	rows int64
	cols int
	read func(first int64, halves []byte, b *buffer) error

	table [tableBytes]byte
	of    [256]byte // codes of upper bytes
	// By 32 rows: their escapes, and how many of these come before each tile.
	escapes [][]byte
	offsets [][]uint32
}

// laterReader makes what it reads from when it is first read.
type laterReader struct {
	make func() (io.Reader, error)
	from io.Reader
}

func (r *laterReader) Read(p []byte) (n int, err error) {
	if r.from == nil {
		if r.from, err = r.make(); err != nil {
			return 0, err
		}
	}
	return r.from.Read(p)
}

func (c *compressor) strip() int64 { return HalfRows * int64(c.cols) }

// halves reads 32 rows into the end of a buffer, behind so many bytes.
func (c *compressor) halves(part int64, b *buffer, behind int) ([]byte, error) {
	size := 2 * int(c.strip())
	b.bytes = slices.Grow(b.bytes[:0], behind+size)[:behind+size]
	return b.bytes[behind:], c.read(part*c.strip(), b.bytes[behind:], b)
}

// codes counts upper bytes, and reads as the codes that follow from them.
func (c *compressor) codes() (io.Reader, error) {
	var counts UpperBytes
	var mu sync.Mutex
	counting := &parallelReader{parts: c.rows / HalfRows, make: func(part int64, b *buffer) error {
		halves, err := c.halves(part, b, 0)
		var own UpperBytes
		own.Add(halves)
		mu.Lock()
		defer mu.Unlock()
		counts.Join(&own)
		b.bytes = b.bytes[:0]
		return err
	}}
	if _, err := io.Copy(io.Discard, counting); err != nil {
		return nil, err
	}
	c.table, c.of, _ = counts.table()
	return &parallelReader{parts: c.rows / HalfRows, make: func(part int64, b *buffer) error {
		size := int(c.strip()) / 2 * 3
		halves, err := c.halves(part, b, size)
		if err != nil {
			return err
		}
		b.bytes = b.bytes[:size]
		c.encode(b.bytes, halves, int(part))
		return nil
	}}, nil
}

// encode compresses 32 rows.
func (c *compressor) encode(dst, halves []byte, part int) {
	var escapes []byte
	offsets := make([]uint32, 0, c.cols/CompressedTile)
	for col := 0; col < c.cols; col += CompressedTile {
		offsets = append(offsets, uint32(len(escapes)))
		escapes = c.encodeTile((*[tileBytes]byte)(dst), halves[2*col:], escapes)
		dst = dst[tileBytes:]
	}
	c.escapes[part], c.offsets[part] = escapes, offsets
}

// encodeTile compresses 32 rows of 32 numbers, and appends their escapes.
func (c *compressor) encodeTile(dst *[tileBytes]byte, halves, escapes []byte) []byte {
	var upper [tileElements]byte // by pair of K and place
	for r := range HalfRows {
		row, place := halves[2*r*c.cols:][:2*CompressedTile], CompressedPlace(r, 1)
		for g := range CompressedTile / 4 { // bytes of both elements of a pair at once
			v := binary.LittleEndian.Uint64(row[8*g:])
			low, up := dst[g*CompressedGroup+place:][:pairBytes+2], upper[2*g*pairBytes+place:][:pairBytes+2]
			binary.LittleEndian.PutUint16(low, uint16(v>>16&0xff|v<<8))
			binary.LittleEndian.PutUint16(low[pairBytes:], uint16(v>>48&0xff|v>>32<<8))
			binary.LittleEndian.PutUint16(up, uint16(v>>24&0xff|v&0xff00))
			binary.LittleEndian.PutUint16(up[pairBytes:], uint16(v>>56|v>>32&0xff00))
		}
	}
	for g := range CompressedTile / 4 {
		two, codes := (*[2 * pairBytes]byte)(upper[2*g*pairBytes:]), (*[pairBytes]byte)(dst[g*CompressedGroup+2*pairBytes:])
		some := 0
		for i := 0; i < len(codes); i += 8 {
			for j := i; j < i+8; j++ {
				codes[j] = c.of[two[j]] | c.of[two[pairBytes+j]]<<4
			}
			some += escapesIn(binary.LittleEndian.Uint64(codes[i:]))
		}
		for i := 0; i < len(two) && some > 0; i++ {
			if c.of[two[i]] == CompressedCode {
				escapes = append(escapes, two[i])
				some--
			}
		}
	}
	return escapes
}

// tail is what comes behind the codes.
func (c *compressor) tail() ([]byte, error) {
	n := int(c.rows) * c.cols
	tail, room := make([]byte, compressedBytes(int64(n))-int64(n/2*3)), n/CompressedRoom
	at, before := tail, 0
	for part, offsets := range c.offsets {
		for _, o := range offsets {
			binary.LittleEndian.PutUint32(at, uint32(before)+o)
			at = at[4:]
		}
		before += len(c.escapes[part])
	}
	if before > room {
		return nil, &RoomError{before, room, n}
	}
	at = at[copy(at, c.table[:]):]
	for _, escapes := range c.escapes {
		at = at[copy(at, escapes):]
	}
	return tail, nil
}

// decodeCompressed takes numbers out one at a time.
func decodeCompressed(dst []float32, storage []byte, n, cols, first int) {
	c := ViewCompressed(n, storage)
	for i := range dst {
		dst[i] = dtype.FromBF16(c.at((first+i)/cols, (first+i)%cols, cols))
	}
}

// at is one number in bf16.
func (c *Compressed) at(row, col, cols int) uint16 {
	strip, group, place := row/HalfRows, col/4, CompressedPlace(row%HalfRows, col%2)
	bytes := c.Codes[(strip*cols/4+group)*CompressedGroup:][:CompressedGroup]
	second, codes := col/2%2, bytes[2*pairBytes:]
	code := codes[place] >> (4 * second) & 15
	upper := c.Table[code]
	if code == CompressedCode {
		upper = c.Escapes[min(c.Escape(strip, group, cols/4)+before(codes, place, second), c.Room())]
	}
	return uint16(upper)<<8 | uint16(bytes[second*pairBytes+place])
}

// before is how many escapes of a group come before a place of its first or second pair.
func before(codes []byte, place, second int) (n int) {
	for pair := range second + 1 {
		for i, c := range codes {
			if (pair < second || i < place) && c>>(4*pair)&15 == CompressedCode {
				n++
			}
		}
	}
	return n
}
