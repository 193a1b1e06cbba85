package kernel

import (
	"spillway/dtype"
	"spillway/quant"
)

// A Matrix is a view of floats in memory, row by row: element (i, j) is
// Data[i*Step+j], or Data[j*Step+i] if Transposed. The right operand of a Gemm may be of a
// 16-bit type: Codes instead of Data.
type Matrix struct {
	Data       []float32
	Step       int
	Transposed bool

	Type  dtype.Type // BF16 or F16, where Codes is used
	Codes []uint16
	// Patches are what the elements are taken from where they are windows of a tensor; element (i, j)
	// is place j of window i.
	Patches *Patches
	// Interleaved codes are a transposed right operand in quant.BF16x32 or F16x32; Step is K.
	Interleaved bool
	// Compressed is where an interleaved operand is in quant.CompressedBF16, instead of Codes; Step is a multiple of 32.
	Compressed *quant.Compressed
	words      bool // a right operand in bf16 that is packed as words, see Pairs
}

// narrow says that the elements are Codes.
func (m *Matrix) narrow() bool { return m.Type != dtype.Invalid }

func (m *Matrix) isBF16() bool { return m.Type == dtype.BF16 }

// Gemm is the matmul C = A·B, with a bias row, the old C or another matrix added:
//
//	C[i*CStep+j] = add + Σp A(i, p) · B(p, j)     i < M, j < N, p < K
//
// where add is C itself (Accumulate), Bias[j], both, Plus[i*CStep+j], or nothing. Every
// element is one chain of multiply-adds over p, cut into slabs whose size depends on K
// and the storage order of A alone: a row of C has the same bits whatever M, N, the
// storage order of B, its type and the number of workers.
//
// A Gemm is made once and run many times; running it allocates nothing.
type Gemm struct {
	M, N, K    int // all above zero
	A, B       Matrix
	C          []float32
	CStep      int
	Bias       []float32 // N elements, or nil
	Plus       []float32 // laid out like C, or nil; without Bias and Accumulate
	Accumulate bool
	// AnyOrder: the sums of few rows need not be in order, see dots.
	AnyOrder bool
	// Finish, if not nil, takes rows i to end and columns j0 to j1 of C as soon as they are computed, while they are in the caches.
	// Several workers call it at the same time.
	Finish func(i, end, j0, j1 int)
	// Work is scratch memory of at least Workspace elements.
	Work []float32

	path *routines
	team []member // of the pool
	// A piece of C has tm rows and tn columns; see cut. left counts the pieces that are
	// not finished, while the matmul runs.
	tm, tn, pieces int
	cutFor         [4]int
	left           int64
	// Of words: the elements that K words hold, what C begins with, and what it is rounded to, see Pairs.
	elements        int
	before, rounded []uint16
}

// Sizes in elements. The packed columns of a block are at most blockSize, half a
// mebibyte, and stay in the second-level cache. They are a slab of K deep: slabK, so
// that C is read and written seldom, or packedSlabK where A is stored by columns and every
// block reads it anew, or packs it, so that blocks are wide. skinnyM is the number of rows up to which
// packing columns costs more than it saves.
const (
	blockSize   = 128 << 10
	slabK       = 512
	packedSlabK = 256
	skinnyM     = 48
)

// Workspace is the scratch memory, in elements, that the matmul needs with so many
// workers: what it depends on is sizes and storage orders.
func (g *Gemm) Workspace(workers int) int {
	switch {
	case g.isInterleavedPairs():
		return workers * g.compressedScratch()
	case g.isInterleaved():
		return workers * g.interleavedScratch()
	case g.isStreamed():
		return workers * g.streamedScratch()
	case g.isSkinny():
		return workers * g.skinnyScratch()
	}
	return workers * g.scratch()
}

// isSkinny says that a matmul has few rows, and its operands lie in memory as they are.
func (g *Gemm) isSkinny() bool {
	return g.M <= skinnyM && g.A.Patches == nil && g.B.Patches == nil
}

// wideTiles says that a tile multiplies what it reads of A by so many columns that lines of A come from the second-level cache
// meanwhile: tiles of AVX-512.
func (r *routines) wideTiles() bool { return r.nr == maxCols }

// columnsAsTheyLie says that tiles read columns of B where they are: so few rows are multiplied by them that packing takes
// longer than it saves. Rows of B that are further apart would share few sets of the second-level cache.
func (g *Gemm) columnsAsTheyLie() bool {
	const fewRows, nearRows = 256, 1024
	b := &g.B
	return g.path.wideTiles() && g.M <= fewRows && b.Step <= nearRows && !b.Transposed && !b.narrow() && b.Patches == nil
}

// depth cuts K into equal slabs, multiples of eight.
func (g *Gemm) depth() int {
	most := slabK
	if g.A.Transposed {
		most = packedSlabK
	}
	if g.elements > 0 { // slabs end where those of f32 do
		return roundUp(ceil(g.elements, ceil(g.elements, most)), 8) / 2
	}
	k := max(g.K, 1)
	return roundUp(ceil(k, ceil(k, most)), 8)
}

// blockN is how many columns a block has at most.
func (g *Gemm) blockN() int { return blockSize / g.depth() / maxCols * maxCols }

func ceil(a, b int) int    { return (a + b - 1) / b }
func roundUp(a, b int) int { return ceil(a, b) * b }

// Run computes the matmul on the pool.
func (g *Gemm) Run(p *Pool) {
	g.path = active
	g.run(p)
}

// run computes it on a path.
func (g *Gemm) run(p *Pool) {
	if g.Accumulate && g.Bias != nil && g.before == nil {
		g.addBias()
	}
	g.team = p.team
	if g.runFew(p) {
		if g.Finish != nil {
			g.Finish(0, g.M, 0, g.N)
		}
		return
	}
	g.pieces = g.cut(p.Workers())
	g.left = int64(g.pieces)
	helpers := p.Workers() - 1
	if g.pieces == 1 { // too little to share
		helpers = 0
	}
	p.Launch(g.pieces+helpers, pieces{g})
}

// runFew computes it if it is a matmul of few rows.
func (g *Gemm) runFew(p *Pool) bool {
	if g.isDots() {
		job := dots{g}
		p.LaunchWork(job.shares().pieces(), job, g.M*g.N*g.K)
		return true
	}
	if g.isInterleavedPairs() {
		job := interleavedPairs{g}
		p.LaunchWork(job.shares().pieces(), job, g.M*g.N*g.K)
		return true
	}
	if g.isInterleaved() {
		job := interleaved{g}
		p.LaunchWork(job.shares().pieces(), job, g.M*g.N*g.K)
		return true
	}
	if g.isStreamed() {
		p.LaunchWork(ceil(g.N, streamed{g}.columns()), streamed{g}, g.M*g.N*g.K)
		return true
	}
	if g.isSkinny() {
		p.LaunchWork(ceil(g.N, skinny{g}.width()), skinny{g}, g.M*g.N*g.K)
		return true
	}
	return false
}

// addBias adds the bias to the old C, for the rare matmul that has both.
func (g *Gemm) addBias() {
	for i := range g.M {
		row := g.C[i*g.CStep:][:g.N]
		Add(row, row, g.Bias)
	}
}

// addend is what a tile at this place adds to its sums over the slab at p0: the result
// of the slabs before, or else what the caller asked for.
func (g *Gemm) addend(p0, row, col int) (add *float32, step int) {
	switch {
	case p0 > 0 || g.Accumulate:
		return &g.C[row*g.CStep+col], g.CStep
	case g.Plus != nil:
		return &g.Plus[row*g.CStep+col], g.CStep
	case g.Bias != nil:
		return &g.Bias[col], 0
	}
	return nil, 0
}

// The cost model of search: packing columns costs as much as multiplying them by packRows more
// rows, reading rows for a block as much as multiplying them by fetchCols more columns, and at
// the end workers wait for 1/waitPart of a piece.
const (
	packRows  = 16
	fetchCols = 16
	waitPart  = 32
)

// cut chooses the size of pieces and returns their number. Every piece packs its columns
// for itself, so few are cheap, and many keep the workers evenly busy. No bit of the
// result depends on it.
func (g *Gemm) cut(workers int) int {
	if is := [4]int{g.M, g.N, g.K, workers}; g.cutFor != is {
		g.cutFor = is
		g.search(workers)
	}
	return ceil(g.N, g.tn) * ceil(g.M, g.tm)
}

// search tries all sensible sizes of pieces.
func (g *Gemm) search(workers int) {
	least, blockN := 0, g.blockN()
	for across := 1; across <= 4*workers; across++ {
		tn := roundUp(ceil(g.N, across), g.path.nr)
		for down := 1; down*across <= 8*workers; down++ {
			tm := roundUp(ceil(g.M, down), g.path.mr)
			turns := ceil(ceil(g.N, tn)*ceil(g.M, tm), workers)
			cost := (waitPart*turns + 1) * (tn + fetchCols*ceil(tn, blockN)) * (tm + packRows)
			if least == 0 || cost < least {
				least, g.tm, g.tn = cost, tm, tn
			}
		}
	}
}
