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

// interleavedM is up to how many rows a matmul is computed this way.
const interleavedM = 12

// interleavedScratch is what one worker needs: the sums of some rows.
const interleavedScratch = maxStreamRows * quant.HalfRows

// isInterleaved says that a matmul is computed this way.
func (g *Gemm) isInterleaved() bool {
	return g.M <= interleavedM && g.B.Interleaved && !g.B.words && g.K%8 == 0 && !g.A.Transposed
}

// shares cuts the columns, those that lie together as one.
func (g interleaved) shares() shares { return shares{g.N / quant.HalfRows, len(g.team)} }

// Run computes a piece.
func (g interleaved) Run(worker, piece int) {
	first, n := g.shares().piece(piece)
	depth, size := g.depth(), interleavedScratch+g.compressedScratch()
	scratch := g.Work[worker*size:][:size]
	for col := first * quant.HalfRows; col < (first+n)*quant.HalfRows; col += quant.HalfRows {
		for p0 := 0; p0 < g.K; p0 += depth {
			g.multiply(col, p0, min(depth, g.K-p0), scratch)
		}
	}
}

// multiply adds a slab of K to columns that lie together, in all rows.
func (g interleaved) multiply(col, p0, kc int, scratch []float32) {
	functions, sums, b := &g.path.half(g.B.Type).interleaved, scratch[:interleavedScratch], (*uint16)(nil)
	if g.B.isCompressed() {
		from := g.B.compressedFrom(col, p0)
		if g.multiplyCompressed(&g.path.compressed.singles, col, p0, kc/4, from) {
			return
		}
		words := &scratch[interleavedScratch]
		g.path.compressed.words(words, quant.HalfRows, kc/4, from)
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
