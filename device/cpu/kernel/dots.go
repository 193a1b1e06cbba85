package kernel

// dots is the matmul of few rows with a weight in bf16 whose memory runs along K, where sums may be in any
// order: some of them run along K side by side, so that each worker reads the weight in the order in which it
// lies in memory, and with little arithmetic for a byte. Streamed, whose sums have the order of all other
// matmuls, reads at several places in turns. A row has the same bits whatever M.
type dots struct{ *Gemm }

const (
	dotsM = 8  // up to how many rows a matmul is computed this way
	dotsK = 32 // elements of a weight in a cache line
	// dotsRows is how many rows of the weight are multiplied by some rows of A before the next: those find
	// them in a cache.
	dotsRows = 4
	// dotsAhead is how many bytes ahead memory is fetched. Behind a GPU's link 2 KiB gave a tenth less, 8 KiB
	// the same.
	dotsAhead = 4096
)

// isDots says that a matmul is computed this way.
func (g *Gemm) isDots() bool {
	return g.AnyOrder && g.B.isBF16() && !g.B.Interleaved && g.A.Patches == nil && HasDots(g.M, g.K, g.A.Transposed, g.B.Transposed)
}

// HasDots says whether there is this way for a matmul of so many rows and elements with a weight in bf16.
func HasDots(m, k int, transA, transB bool) bool {
	return active.dots && m <= dotsM && k%dotsK == 0 && transB && !transA
}

// shares cuts the columns, dotsRows as one.
func (g dots) shares() shares { return shares{ceil(g.N, dotsRows), len(g.team)} }

// Run computes some columns.
func (g dots) Run(_, piece int) {
	first, n := g.shares().piece(piece)
	step := n * dotsRows
	if g.M > 1 && g.M != dotsFour { // others come back to what one has read
		step = dotsRows
	}
	for from, to := first*dotsRows, min((first+n)*dotsRows, g.N); from < to; from += step {
		for i := 0; i < g.M; {
			if g.M-i >= dotsFour {
				g.four(i, from, min(from+step, to))
				i += dotsFour
				continue
			}
			g.one(i, from, min(from+step, to))
			i++
		}
	}
}

// dotsFour is how many rows of A are multiplied at once, and dotsSums of how many columns sums are held.
const dotsFour, dotsSums = 4, 64

// one computes some columns of row i.
func (g dots) one(i, from, to int) {
	var sums [dotsSums]float32
	for ; from < to; from += dotsSums {
		some := sums[:min(dotsSums, to-from)]
		bf16Dots(len(some), g.K, &g.A.Data[i*g.A.Step], &g.B.Codes[from*g.B.Step], g.B.Step, &some[0], dotsAhead)
		g.store(i, from, some)
	}
}

// four computes some columns of four rows from i on.
func (g dots) four(i, from, to int) {
	var sums [dotsFour * dotsSums]float32
	for ; from < to; from += dotsSums {
		n := min(dotsSums, to-from)
		bf16FourDots(n, g.K, &g.A.Data[i*g.A.Step], g.A.Step, &g.B.Codes[from*g.B.Step], g.B.Step, &sums[0], dotsSums, dotsAhead)
		for row := range dotsFour {
			g.store(i+row, from, sums[row*dotsSums:][:n])
		}
	}
}

// store writes some columns of row i of C, with what was asked to be added.
func (g dots) store(i, col int, sums []float32) {
	row := g.C[i*g.CStep+col:][:len(sums)]
	switch {
	case g.Accumulate:
		g.path.add(row, sums, row)
	case g.Plus != nil:
		g.path.add(row, sums, g.Plus[i*g.CStep+col:][:len(sums)])
	case g.Bias != nil:
		g.path.add(row, sums, g.Bias[col:][:len(sums)])
	default:
		copy(row, sums)
	}
}
