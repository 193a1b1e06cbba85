package kernel

// dots is the matmul of few rows with a weight in 16 bits whose memory runs along K, where sums may
// be in any order: eight of them run along K side by side, so that the weight goes from memory to
// registers as it is stored. It is faster than streamed, whose sums have the order of all other
// matmuls, and gives a row the same bits whatever M.
type dots struct {
	*Gemm
	four dotsFunc
}

// A dotsFunc multiplies a vector by four rows of a weight, bStep apart: sums has eight parts of each. K is
// a multiple of 32.
type dotsFunc func(k int, a *float32, b *uint16, bStep int, sums *float32)

const (
	dotsM       = 8  // up to how many rows a matmul is computed this way
	dotsAtOnce  = 4  // rows of the weight
	dotsLanes   = 8  // sums of each, along K
	dotsColumns = 32 // of a piece
)

// asDots says that a matmul is computed this way, and by which kernel.
func (g *Gemm) asDots() (dots, bool) {
	if !g.AnyOrder || g.M > dotsM || g.N < dotsAtOnce || g.K%32 != 0 || !g.B.narrow() || !g.B.Transposed || g.B.Interleaved || g.A.Transposed {
		return dots{}, false
	}
	four := dotsOf(g.B.Type)
	return dots{g, four}, four != nil
}

// Run computes some columns.
func (g dots) Run(_, piece int) {
	for col := piece * dotsColumns; col < min((piece+1)*dotsColumns, g.N); col += dotsAtOnce {
		first := min(col, g.N-dotsAtOnce) // the last ones may be computed twice
		for i := range g.M {
			var sums [dotsAtOnce * dotsLanes]float32
			g.four(g.K, &g.A.Data[i*g.A.Step], &g.B.Codes[first*g.B.Step], g.B.Step, &sums[0])
			for n := col - first; n < dotsAtOnce; n++ {
				s := sums[n*dotsLanes:][:dotsLanes]
				g.store(i, first+n, ((s[0]+s[4])+(s[1]+s[5]))+((s[2]+s[6])+(s[3]+s[7])))
			}
		}
	}
}

// store writes an element of C, with what was asked to be added.
func (g dots) store(i, col int, sum float32) {
	at := i*g.CStep + col
	switch {
	case g.Accumulate:
		sum += g.C[at]
	case g.Plus != nil:
		sum += g.Plus[at]
	case g.Bias != nil:
		sum += g.Bias[col]
	}
	g.C[at] = sum
}
