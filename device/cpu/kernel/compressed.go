package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"

	"spillway/quant"
)

// Weights in quant.CompressedBF16 are multiplied by few rows as they are read: upper and lower bytes are put together in
// registers. For more rows a slab of the columns that lie together is decoded once, to the words of quant.BF16x32 or to numbers, and
// multiplied as these are. So elements have the chain of multiply-adds that they have with any other weight.

// compressedAt is where a compressed weight is read from. The assembly knows its layout.
type compressedAt struct {
	codes   *byte // of groups of four elements of K, of the columns that lie together
	table   *byte
	escapes *byte // the first of them
	last    *byte // where escapes are read from that are more than there is room for
}

// compressed is how compressed weights are decoded and multiplied.
type compressed struct {
	fast bool // not in plain Go
	// most is up to how many rows columns are decoded again for the next ones.
	most int
	// words decodes groups to words, see pairs: dst[p*step+j] for columns j < 16 of those that lie together, and
	// dst[half+p*step+j-16] for the others, p < 2·groups; numbers to p < 4·groups.
	words, numbers decodeFunc
	// pairs multiply words, singles numbers; by how many rows. They may be nil.
	pairs, singles [compressedRows + 1]compressedFunc
	// first multiplies the first compressedRows of more rows by words, and decodes them too, as words does, with a step of 32; nil for no.
	first func(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int, words *float32)
}

type decodeFunc func(dst *float32, step, half, groups int, w compressedAt)

// A compressedFunc multiplies rows of A by the 32 columns that lie together, in words or numbers:
//
//	c[i*cStep+j] = add[i*addStep+j] + Σp a[i*aStep+p] · w(p, j)     in order of p, of all groups
//
// The sum is complete before add, which may be nil, comes to it.
type compressedFunc func(groups int, w compressedAt, a *float32, aStep int, c *float32, cStep int, add *float32, addStep int)

// compressedRows is how many rows are multiplied at once at most.
const compressedRows = 8

// HasCompressed says whether this CPU multiplies compressed weights fast.
func HasCompressed() bool { return active.compressed.fast }

// isCompressed says that the elements are Compressed.
func (m *Matrix) isCompressed() bool { return m.Compressed != nil }

// compressedFrom is where columns that lie together are, from element p0 of K on.
func (m *Matrix) compressedFrom(col, p0 int) compressedAt {
	c, strip, groups := m.Compressed, col/quant.HalfRows, m.Step/4
	return compressedAt{&c.Codes[(strip*groups+p0/4)*quant.CompressedGroup], &c.Table[0], &c.Escapes[c.Escape(strip, p0/4, groups)], &c.Escapes[c.Room()]}
}

// multiplyCompressed multiplies all rows by columns that lie together, by so many groups of a slab at p0. It is false where no function does.
func (g *Gemm) multiplyCompressed(functions *[compressedRows + 1]compressedFunc, col, p0, groups int, from compressedAt) bool {
	if g.M > g.path.compressed.most || functions[1] == nil {
		return false
	}
	for i := 0; i < g.M; {
		h := min(g.M-i, compressedRows)
		for functions[h] == nil {
			h--
		}
		add, addStep := g.addend(p0, i, col)
		functions[h](groups, from, &g.A.Data[i*g.A.Step+p0], g.A.Step, &g.C[i*g.CStep+col], g.CStep, add, addStep)
		i += h
	}
	return true
}

// compressedScratch is what one worker needs to decode a slab of columns that lie together to words.
func (g *Gemm) compressedScratch() int {
	if !g.B.isCompressed() {
		return 0
	}
	if g.B.words {
		return g.depth() * quant.HalfRows
	}
	return g.depth() / 2 * quant.HalfRows
}

// packCompressed fills panels of columns, as words or as numbers; p0 and kc count elements.
func (m *Matrix) packCompressed(r *routines, panels []float32, step, first, n, p0, kc int, words bool) {
	const together, half = quant.HalfRows, quant.HalfRows / 2
	decode, rows := r.compressed.numbers, kc
	if words {
		decode, rows = r.compressed.words, kc/2
	}
	for i := 0; i < n; {
		col, panel := first+i, &panels[i/step*step*rows+i%step]
		switch left := min(step-i%step, n-i); {
		case col%together == 0 && left >= together:
			decode(panel, step, half, kc/4, m.compressedFrom(col, p0))
			i += together
		case col%together == 0 && step == half && n-i >= together: // of two panels
			decode(panel, step, half*rows, kc/4, m.compressedFrom(col, p0))
			i += together
		default:
			width := min(together-col%together, left)
			narrowCompressed(panel, step, kc/4, m.compressedFrom(col, p0), col%together, width, words)
			i += width
		}
	}
}

// narrowCompressed decodes some of the columns that lie together, plainly: at most those at the ends of a block.
func narrowCompressed(dst *float32, step, groups int, w compressedAt, first, width int, words bool) {
	const half = quant.HalfRows / 2
	var group [4 * quant.HalfRows]float32
	for ; groups > 0; groups-- {
		rows := 2
		if words {
			w = decodeWords(&group[0], quant.HalfRows, half, 1, w)
		} else {
			w, rows = decodeNumbers(&group[0], quant.HalfRows, half, 1, w), 4
		}
		for p := range rows {
			copy(unsafe.Slice(dst, width), group[p*quant.HalfRows+first:])
			dst = at(dst, step)
		}
	}
}

// The plain way.

func portableCompressed() compressed {
	return compressed{
		words:   func(dst *float32, step, half, groups int, w compressedAt) { decodeWords(dst, step, half, groups, w) },
		numbers: func(dst *float32, step, half, groups int, w compressedAt) { decodeNumbers(dst, step, half, groups, w) },
	}
}

// placed is where row p of column j goes, see decodeFunc.
func placed(p, j, step, half int) int {
	const width = quant.HalfRows / 2
	return p*step + j/width*half + j%width
}

// decodeWords decodes groups, and says where the next ones are.
func decodeWords(dst *float32, step, half, groups int, w compressedAt) compressedAt {
	const places = 2 * quant.HalfRows // of a pair of K
	table := unsafe.Slice(w.table, quant.CompressedCode+1)
	for range groups {
		group := unsafe.Slice(w.codes, quant.CompressedGroup)
		for pair := range 2 {
			var halves [2 * places]byte // by place, little endian
			escapes, next := unsafe.Slice(w.escapes, places), 0
			for i := range places {
				code := group[2*places+i] >> (4 * pair) & 15
				upper := table[code]
				if code == quant.CompressedCode {
					upper = escapes[next]
					next++
				}
				halves[2*i], halves[2*i+1] = group[pair*places+i], upper
			}
			if next >= int(uintptr(unsafe.Pointer(w.last))-uintptr(unsafe.Pointer(w.escapes))) { // of storage that is damaged
				w.escapes = w.last
			} else {
				w.escapes = (*byte)(unsafe.Add(unsafe.Pointer(w.escapes), next))
			}
			for j := range quant.HalfRows {
				*at(dst, placed(pair, j, step, half)) = math.Float32frombits(binary.LittleEndian.Uint32(halves[2*quant.CompressedPlace(j, 1):]))
			}
		}
		dst = at(dst, 2*step)
		w.codes = (*byte)(unsafe.Add(unsafe.Pointer(w.codes), quant.CompressedGroup))
	}
	return w
}

// decodeNumbers is decodeWords to f32: the first element of a word is its upper half.
func decodeNumbers(dst *float32, step, half, groups int, w compressedAt) compressedAt {
	var words [2 * quant.HalfRows]float32
	for range groups {
		w = decodeWords(&words[0], quant.HalfRows, quant.HalfRows/2, 1, w)
		for i, word := range words {
			p, j, bits := i/quant.HalfRows*2, i%quant.HalfRows, math.Float32bits(word)
			*at(dst, placed(p, j, step, half)) = math.Float32frombits(bits & 0xffff0000)
			*at(dst, placed(p+1, j, step, half)) = math.Float32frombits(bits << 16)
		}
		dst = at(dst, 4*step)
	}
	return w
}
