package kernel

// dots is the matmul of few rows with a weight in bf16 whose memory runs along K, where sums may be in any
// order: some of them run along K side by side, so that each worker reads the weight in the order in which it
// lies in memory, and with little arithmetic for a byte. Streamed, whose sums have the order of all other
// matmuls, reads at several places in turns. A row has the same bits whatever M.
type dots struct{ *Gemm }

// A dotsFunc multiplies a vector by rows of a weight, bStep elements apart, and gives a sum for each. It fetches
// memory so many bytes ahead. K is a multiple of dotsK.
type dotsFunc func(rows, k int, a *float32, b *uint16, bStep int, sums *float32, ahead int)

const (
	dotsM = 8  // up to how many rows a matmul is computed this way
	dotsK = 32 // elements of a weight in a cache line
	// dotsRows is how many rows of the weight are multiplied by one row of A before the next: the others find
	// them in a cache.
	dotsRows = 4
)

// dotsAhead is how many bytes ahead memory is fetched.
const dotsAhead = 2048

// isDots says that a matmul is computed this way.
func (g *Gemm) isDots() bool {
	return g.AnyOrder && g.M <= dotsM && g.K%dotsK == 0 && bf16Dots != nil && g.B.isBF16() && g.B.Transposed && !g.B.Interleaved && !g.A.Transposed && g.A.Patches == nil
}

// shares cuts the columns, dotsRows as one.
func (g dots) shares() shares { return shares{ceil(g.N, dotsRows), len(g.team)} }

// Run computes some columns.
func (g dots) Run(_, piece int) {
	first, n := g.shares().piece(piece)
	if g.M == 1 { // in one run over the memory
		g.columns(0, first*dotsRows, min((first+n)*dotsRows, g.N))
		return
	}
	for ; n > 0; first, n = first+1, n-1 {
		for i := range g.M {
			g.columns(i, first*dotsRows, min((first+1)*dotsRows, g.N))
		}
	}
}

// columns computes some of row i.
func (g dots) columns(i, from, to int) {
	var sums [64]float32
	for ; from < to; from += len(sums) {
		some := sums[:min(len(sums), to-from)]
		bf16Dots(len(some), g.K, &g.A.Data[i*g.A.Step], &g.B.Codes[from*g.B.Step], g.B.Step, &some[0], dotsAhead)
		row := g.C[i*g.CStep+from:][:len(some)]
		switch {
		case g.Accumulate:
			g.path.add(row, some, row)
		case g.Plus != nil:
			g.path.add(row, some, g.Plus[i*g.CStep+from:][:len(some)])
		case g.Bias != nil:
			g.path.add(row, some, g.Bias[from:][:len(some)])
		default:
			copy(row, some)
		}
	}
}
