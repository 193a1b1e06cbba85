package kernel

import (
	"unsafe"

	"spillway/quant"
)

// interleaved is the matmul of few rows with an interleaved weight in 16 bits. Columns that lie
// together are multiplied at once, so that each worker reads memory in order, in long runs. That is
// about a third faster than reading at several places in turns. Elements have the chain of
// multiply-adds that they have in other matmuls.
type interleaved struct{ *Gemm }

// An interleavedFunc multiplies h rows of A by the columns that lie together, h by its index:
//
//	sums[i*quant.HalfRows+j] = Σp a[i*aStep+p] · b(p, j)     p < k, in order
//
// k is a multiple of 8.
type interleavedFunc func(k int, a *float32, aStep int, b *uint16, sums *float32)

// interleavedM is up to how many rows a matmul is computed this way with weights as they are read. More rows are multiplied by numbers,
// where a path widens all columns that lie together at once.
const interleavedM = 12

// interleavedSums is what one worker needs for the sums of some rows.
const interleavedSums = maxStreamRows * quant.HalfRows

// isInterleaved says that a matmul is computed this way.
func (g *Gemm) isInterleaved() bool {
	if !g.B.Interleaved || g.B.words || g.K%8 != 0 || g.A.Transposed || g.A.Patches != nil {
		return false
	}
	return g.M <= interleavedM || g.widensTogether()
}

// widensTogether says that there are so many rows that it pays to widen a slab of columns that lie together first.
func (g *Gemm) widensTogether() bool {
	return g.M > interleavedM && g.M <= skinnyM && active.half(g.B.Type).together != nil
}

// interleavedScratch is what one worker needs: the sums of some rows and words, or the numbers of a slab.
func (g *Gemm) interleavedScratch() int {
	if g.widensTogether() {
		return g.depth() * quant.HalfRows
	}
	return interleavedSums + g.compressedScratch()
}

// shares cuts the columns, those that lie together as one.
func (g interleaved) shares() shares { return shares{g.N / quant.HalfRows, len(g.team)} }

// Run computes a piece.
func (g interleaved) Run(worker, piece int) {
	first, n := g.shares().piece(piece)
	depth, size, multiply := g.depth(), g.interleavedScratch(), g.multiply
	if g.widensTogether() {
		multiply = g.multiplyNumbers
	}
	scratch := g.Work[worker*size:][:size]
	for col := first * quant.HalfRows; col < (first+n)*quant.HalfRows; col += quant.HalfRows {
		for p0 := 0; p0 < g.K; p0 += depth {
			multiply(col, p0, min(depth, g.K-p0), scratch)
		}
	}
}

// multiply adds a slab of K to columns that lie together, in all rows.
func (g interleaved) multiply(col, p0, kc int, scratch []float32) {
	functions, sums, b := &g.path.half(g.B.Type).interleaved, scratch[:interleavedSums], (*uint16)(nil)
	if g.B.isCompressed() {
		from := g.B.compressedFrom(col, p0)
		if g.multiplyCompressed(&g.path.compressed.singles, col, p0, kc/4, from) {
			return
		}
		words := &scratch[interleavedSums]
		g.path.compressed.words(words, quant.HalfRows, quant.HalfRows/2, kc/4, from)
		b = (*uint16)(unsafe.Pointer(words))
	} else {
		b = &g.B.Codes[col*g.B.Step+quant.HalfRows*p0]
	}
	for i := 0; i < g.M; {
		h := min(g.M-i, maxStreamRows)
		for functions[h] == nil {
			h--
		}
		functions[h](kc, &g.A.Data[i*g.A.Step+p0], g.A.Step, b, &sums[0])
		for row := range h {
			g.store(p0, i+row, col, sums[row*quant.HalfRows:][:quant.HalfRows])
		}
		i += h
	}
}

// multiplyNumbers does so by numbers, to which it widens the slab: in panels as tiles read them.
func (g interleaved) multiplyNumbers(col, p0, kc int, panels []float32) {
	const width = quant.HalfRows / 2
	r := g.path
	if g.B.isCompressed() {
		r.compressed.numbers(&panels[0], width, width*kc, kc/4, g.B.compressedFrom(col, p0))
	} else {
		r.half(g.B.Type).together(&panels[0], width, width*kc, &g.B.Codes[col*g.B.Step+quant.HalfRows*p0], kc)
	}
	for j := 0; j < quant.HalfRows; j += width {
		add, addStep := g.addend(p0, 0, col+j)
		r.tiles(&r.tileRows, g.M, g.A.Step, kc, &g.A.Data[p0], g.A.Step, &panels[j*kc], width, &g.C[col+j], g.CStep, width, add, addStep, fetch{})
	}
}

// store adds the sums of a slab to what comes before.
func (g interleaved) store(p0, i, col int, sums []float32) {
	row := g.C[i*g.CStep+col:][:quant.HalfRows]
	switch {
	case p0 > 0 || g.Accumulate:
		g.path.add(row, sums, row)
	case g.Plus != nil:
		g.path.add(row, sums, g.Plus[i*g.CStep+col:][:quant.HalfRows])
	case g.Bias != nil:
		g.path.add(row, sums, g.Bias[col:][:quant.HalfRows])
	default:
		copy(row, sums)
	}
}
