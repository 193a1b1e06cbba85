package kernel

import (
	"math"
	"unsafe"

	"spillway/dtype"
	"spillway/quant"
)

// Pairs is the matmul C = A·B of two matrices in bf16, with a bias row, the old C or another matrix
// added, see Gemm. CPUs with AVX-512 BF16 multiply two elements of K in each lane at once, twice as
// many as in f32. Two bf16 multiplied are exact in f32, and such an instruction adds one after the other,
// rounding each time. So elements have the chain of multiply-adds that they have in a Gemm of the same
// numbers in f32, and its bits, with one exception: numbers below 2^-126 (1.2e-38) count as zero.
//
// A Pairs is made once and run many times; running it allocates nothing.
type Pairs struct {
	M, N, K    int    // all above zero
	A, B       Matrix // Codes in bf16; B may be interleaved
	C          []uint16
	Sums       []float32 // C in f32 instead of bf16, or nil; without Plus
	Bias       []float32 // N elements, or nil
	Plus       []uint16  // laid out like C, or nil; without Bias and Accumulate
	Accumulate bool
	// Work is scratch memory of at least Workspace elements.
	Work []float32

	gemm Gemm // of words
	path *routines
}

// A word holds two elements of K, as the instruction wants them: it multiplies its upper half first,
// so that is where the first one is. A matrix of words has half the K, and a word the size of a f32:
// what packs, cuts and shares a Gemm of f32 does the same with one of words.

// HasPairs says whether this CPU multiplies pairs fast.
func HasPairs() bool { return active.pairs.fast }

// pairs is how words are made and multiplied.
type pairs struct {
	fast bool // not in plain Go
	// tileCols and tileRows are those of words, by height; the heights are those of f32.
	tileCols, tileRows [maxRows + 1]tileFunc
	// swap makes n words of elements that lie one behind the other.
	swap func(dst *float32, src *uint16, n int)
	// zip makes words of elements below each other, in k pairs of rows: dst[p*step+j] is of
	// src[2*p*srcStep+j] and src[(2*p+1)*srcStep+j], j < width, which is at most maxCols.
	zip func(dst *float32, step int, src *uint16, srcStep, k, width int)
	// streams are those of half that count numbers below 2^-126 as zero, as tiles of words do; none for no.
	streams [maxStreamRows + 1]streamsFunc
}

// ofWords is a path that multiplies words instead of numbers.
func (r *routines) ofWords() *routines {
	words := *r
	words.bf16.streams = r.pairs.streams
	words.tileCols, words.tileRows = r.pairs.tileCols, r.pairs.tileRows
	words.lineCols, words.lineRows = nil, nil
	return &words
}

// words is how many words hold a row of K.
func (g *Pairs) words() int { return ceil(g.K, 2) }

// Workspace is the scratch memory, in elements, that the matmul needs with so many workers: A as it is multiplied,
// C in f32, and what the matmul of both needs.
func (g *Pairs) Workspace(workers int) int {
	g.prepare()
	return g.sizeOfA() + g.sizeOfC() + g.gemm.Workspace(workers)
}

func (g *Pairs) sizeOfC() int { return roundUp(g.M*g.N, lineFloats) }

func (g *Pairs) sizeOfA() int { return roundUp(g.M*g.gemm.K, lineFloats) }

// prepare makes the matmul of words, without operands. Very few rows are multiplied by a weight whose memory runs
// along K in f32, which reads it faster than packing does.
func (g *Pairs) prepare() {
	g.gemm.M, g.gemm.N, g.gemm.K, g.gemm.elements, g.gemm.CStep = g.M, g.N, g.K, 0, g.N
	g.gemm.A, g.gemm.B = Matrix{Step: g.K, Transposed: g.A.Transposed}, g.B
	g.gemm.B.Type, g.gemm.B.words = dtype.BF16, false
	if active.pairs.streams[1] != nil && g.gemm.isStreamed() {
		return
	}
	g.gemm.K, g.gemm.elements, g.gemm.B.words = g.words(), g.K, true
	if g.gemm.A.Step = g.words(); g.A.Transposed {
		g.gemm.A.Step = g.M
	}
}

// Run computes the matmul on the pool.
func (g *Pairs) Run(p *Pool) {
	if g.path == nil || g.path.name != active.name {
		g.path = active.ofWords()
	}
	g.prepare()
	a := g.sizeOfA()
	g.gemm.A.Data, g.gemm.Work, g.gemm.Bias = g.Work[:a], g.Work[a:], g.Bias
	if g.Sums != nil {
		g.gemm.C, g.gemm.Accumulate, g.gemm.rounded, g.gemm.before = g.Sums, g.Accumulate, nil, nil
	} else {
		g.rounded(g.sizeOfC())
	}
	left := wordsOfA{g}
	p.LaunchWork(left.pieces(), left, g.M*g.K)
	g.gemm.path = g.path
	g.gemm.run(p)
}

// rounded has sums, in so much scratch memory, rounded to C.
func (g *Pairs) rounded(size int) {
	g.gemm.C, g.gemm.Work = g.gemm.Work[:size], g.gemm.Work[size:]
	g.gemm.rounded, g.gemm.before = g.C, g.Plus
	if g.Accumulate {
		g.gemm.before = g.C
	}
	g.gemm.Accumulate = g.gemm.before != nil
}

// wordsOfA is the job that makes words of A, or f32. A piece is some rows of what is stored.
type wordsOfA struct{ *Pairs }

// wordsPiece is how many words a piece has about.
const wordsPiece = 16 << 10

// lines is how many rows of words there are, each of width words.
func (g wordsOfA) lines() (lines, width int) {
	if g.A.Transposed {
		return g.words(), g.M
	}
	return g.M, g.words()
}

func (g wordsOfA) step() int {
	_, width := g.lines()
	return max(1, wordsPiece/width)
}

func (g wordsOfA) pieces() int {
	lines, _ := g.lines()
	return ceil(lines, g.step())
}

// Run makes the words of a piece.
func (g wordsOfA) Run(_, piece int) {
	lines, width := g.lines()
	from, to := piece*g.step(), min((piece+1)*g.step(), lines)
	for i := from; i < to && !g.gemm.B.words; i++ {
		dtype.BF16.Widen(g.gemm.A.Data[i*g.K:][:g.K], g.A.Codes[i*g.A.Step:])
	}
	if !g.gemm.B.words {
		return
	}
	if g.A.Transposed {
		for j := 0; j < width; j += maxCols {
			g.A.zip(g.path, g.gemm.A.Data[from*width+j:], width, j, min(maxCols, width-j), from, to-from, g.K)
		}
		return
	}
	for i := from; i < to; i++ {
		row, dst := g.A.Codes[i*g.A.Step:][:g.K], g.gemm.A.Data[i*width:][:width]
		if g.K > 1 {
			g.path.pairs.swap(&dst[0], &row[0], g.K/2)
		}
		if g.K%2 == 1 {
			dst[width-1] = wordOf(row[g.K-1], 0)
		}
	}
}

// zip makes words of elements stored row by row: those of n columns from first on, and of pairs of rows
// from p0 on. There are k rows; the last word of an odd number has a zero.
func (m *Matrix) zip(r *routines, dst []float32, step, first, n, p0, kc, k int) {
	whole := min(kc, k/2-p0)
	if whole > 0 {
		r.pairs.zip(&dst[0], step, &m.Codes[2*p0*m.Step+first], m.Step, whole, n)
	}
	if whole < kc {
		for j, c := range m.Codes[(k-1)*m.Step+first:][:n] {
			dst[whole*step+j] = wordOf(c, 0)
		}
	}
}

// wordOf is the word of two elements of K.
func wordOf(first, second uint16) float32 {
	return math.Float32frombits(uint32(first)<<16 | uint32(second))
}

// packWords is pack of a matrix in bf16 as words; p0 and kc count words, and there are k elements along
// the panels in all.
func (m *Matrix) packWords(r *routines, panels []float32, step, first, n, p0, kc, k int, along bool) {
	switch {
	case m.isCompressed():
		m.packCompressed(r, panels, step, first, n, 2*p0, 2*kc, true)
	case m.Interleaved:
		m.packInterleavedWords(r, panels, step, first, n, p0, kc)
	case along:
		for i := 0; i < n; i += step {
			m.transposeWords(r, panels[i*kc:], step, first+i, min(step, n-i), p0, kc, k)
		}
	default:
		for i := 0; i < n; i += step {
			m.zip(r, panels[i*kc:], step, first+i, min(step, n-i), p0, kc, k)
		}
	}
}

// packInterleavedWords copies words, which interleaved weights consist of.
func (m *Matrix) packInterleavedWords(r *routines, panels []float32, step, first, n, p0, kc int) {
	const together = quant.HalfRows
	for i := 0; i < n; {
		col := first + i
		width := min(together-col%together, step-i%step, n-i)
		from := m.interleavedWords(col, p0)
		r.packCopy(&panels[i/step*step*kc+i%step], step, from, together, kc, width, 1)
		i += width
	}
}

// interleavedWords is where the words of a column of an interleaved weight are, from the p0-th on; the
// next ones are quant.HalfRows apart.
func (m *Matrix) interleavedWords(col, p0 int) *float32 {
	const together = quant.HalfRows
	return (*float32)(unsafe.Pointer(&m.Codes[col/together*together*m.Step+2*(p0*together+col%together)]))
}

// transposeWords fills the first n columns of a panel from memory that runs along it. Where columns
// begin at odd elements, or what is beyond the last one is no pair, that is done plainly.
func (m *Matrix) transposeWords(r *routines, panel []float32, step, first, n, p0, kc, k int) {
	whole := min(kc, k/2-p0)
	if m.Step%2 == 0 && whole > 0 {
		from := (*float32)(unsafe.Pointer(&m.Codes[first*m.Step+2*p0]))
		r.packTranspose(&panel[0], step, from, m.Step/2, whole, n)
		end := (whole-1)*step + n
		r.pairs.swap(&panel[0], (*uint16)(unsafe.Pointer(&panel[0])), end)
	} else {
		whole = 0
	}
	for p := whole; p < kc; p++ {
		for j := range n {
			at := (first+j)*m.Step + 2*(p0+p)
			second := uint16(0)
			if 2*(p0+p)+1 < k {
				second = m.Codes[at+1]
			}
			panel[p*step+j] = wordOf(m.Codes[at], second)
		}
	}
}

// begin makes C what sums are added to, in some rows and columns, where that is stored in bf16.
func (g *Gemm) begin(i0, iEnd, j0, jEnd int) {
	for i := i0; i < iEnd && g.before != nil; i++ {
		row := g.C[i*g.CStep+j0 : i*g.CStep+jEnd]
		dtype.BF16.Widen(row, g.before[i*g.CStep+j0:i*g.CStep+jEnd])
		if g.Bias != nil {
			g.path.add(row, row, g.Bias[j0:jEnd])
		}
	}
}

// round rounds some rows and columns of C that are finished to bf16, where they are asked for in bf16.
func (g *Gemm) round(i0, iEnd, j0, jEnd int) {
	for i := i0; i < iEnd && g.rounded != nil; i++ {
		dtype.BF16.Narrow(g.rounded[i*g.CStep+j0:i*g.CStep+jEnd], g.C[i*g.CStep+j0:i*g.CStep+jEnd])
	}
}

// interleavedPairs is the matmul of few rows with an interleaved weight in bf16, in words. Tiles read the
// columns that lie together where they lie, all rows before the next columns: so each worker reads memory
// in order.
type interleavedPairs struct{ *Gemm }

// isInterleavedPairs says that a matmul is computed this way.
func (g *Gemm) isInterleavedPairs() bool {
	return g.B.words && g.B.Interleaved && g.M <= skinnyM && !g.A.Transposed
}

// shares cuts the columns, those that lie together as one.
func (g interleavedPairs) shares() shares { return shares{g.N / quant.HalfRows, len(g.team)} }

// Run computes a piece.
func (g interleavedPairs) Run(worker, piece int) {
	first, n := g.shares().piece(piece)
	from, to, depth := first*quant.HalfRows, (first+n)*quant.HalfRows, g.depth()
	g.begin(0, g.M, from, to)
	for col := from; col < to; col += quant.HalfRows {
		for p0 := 0; p0 < g.K; p0 += depth {
			g.multiply(worker, col, p0, min(depth, g.K-p0))
		}
	}
	g.round(0, g.M, from, to)
}

// multiply adds a slab of K to columns that lie together, in all rows.
func (g interleavedPairs) multiply(worker, col, p0, kc int) {
	if !g.B.isCompressed() {
		g.multiplyWords(g.B.interleavedWords(col, p0), 0, col, p0, kc)
		return
	}
	c, from := &g.path.compressed, g.B.compressedFrom(col, 2*p0)
	if g.multiplyCompressed(&c.pairs, col, p0, kc/2, from) {
		return
	}
	words := &g.Work[worker*g.compressedScratch()]
	if c.first == nil || g.M <= compressedRows {
		c.words(words, quant.HalfRows, quant.HalfRows/2, kc/2, from)
		g.multiplyWords(words, 0, col, p0, kc)
		return
	}
	add, addStep := g.addend(p0, 0, col)
	c.first(kc/2, from, &g.A.Data[p0], g.A.Step, &g.C[col], g.CStep, add, addStep, words)
	g.multiplyWords(words, compressedRows, col, p0, kc)
}

// multiplyWords does so in the rows from i on, by words.
func (g interleavedPairs) multiplyWords(words *float32, i, col, p0, kc int) {
	r := g.path
	for j := 0; j < quant.HalfRows; j += r.nr {
		add, addStep := g.addend(p0, i, col+j)
		r.tiles(&r.tileRows, g.M-i, g.A.Step, kc, &g.A.Data[i*g.A.Step+p0], g.A.Step, at(words, j), quant.HalfRows,
			&g.C[i*g.CStep+col+j], g.CStep, min(r.nr, quant.HalfRows), add, addStep, fetch{})
	}
}

// The plain way.

func portablePairs() pairs {
	w := pairs{swap: swapGo, zip: zipGo}
	for h := 1; h <= maxRows; h++ {
		w.tileCols[h] = func(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, _ fetch) {
			pairTileGo(h, k, a, 1, aStep, b, bStep, c, cStep, cols, add, addStep)
		}
		w.tileRows[h] = func(k int, a *float32, aStep int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int, _ fetch) {
			pairTileGo(h, k, a, aStep, 1, b, bStep, c, cStep, cols, add, addStep)
		}
	}
	return w
}

func swapGo(dst *float32, src *uint16, n int) {
	for i := range n {
		*at(dst, i) = wordOf(*codeAt(src, 2*i), *codeAt(src, 2*i+1))
	}
}

func zipGo(dst *float32, step int, src *uint16, srcStep, k, width int) {
	for p := range k {
		for j := range width {
			*at(dst, p*step+j) = wordOf(*codeAt(src, 2*p*srcStep+j), *codeAt(src, (2*p+1)*srcStep+j))
		}
	}
}

// pairTileGo is tileGo of words.
func pairTileGo(h, k int, a *float32, aRow, aCol int, b *float32, bStep int, c *float32, cStep int, cols int, add *float32, addStep int) {
	for i := range h {
		for j := range cols {
			var sum float32
			for p := range k {
				sum = multiplyPair(sum, math.Float32bits(*at(a, i*aRow+p*aCol)), math.Float32bits(*at(b, p*bStep+j)))
			}
			if add != nil {
				sum += *at(add, i*addStep+j)
			}
			*at(c, i*cStep+j) = sum
		}
	}
}

// multiplyPair multiplies two pairs and adds both results to a sum, as VDPBF16PS does in a lane: first those of the upper
// halves, each with a rounding to nearest even. A float64 holds such a result exactly, and its sum with a
// f32 well enough to be rounded as if it had not been rounded before.
func multiplyPair(sum float32, a, b uint32) float32 {
	const upper = 0xffff0000
	sum = flushed(float32(float64(flushed(sum)) + bf16Of(a&upper)*bf16Of(b&upper)))
	return flushed(float32(float64(sum) + bf16Of(a<<16)*bf16Of(b<<16)))
}

// bf16Of is the number with the upper half of these bits.
func bf16Of(bits uint32) float64 { return float64(flushed(math.Float32frombits(bits))) }

// flushed is x, or a zero of its sign where x is less than the least normal number.
func flushed(x float32) float32 {
	const sign, exponent = 1 << 31, 0xff << 23
	if bits := math.Float32bits(x); bits&exponent == 0 {
		return math.Float32frombits(bits & sign)
	}
	return x
}
