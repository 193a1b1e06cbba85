package kernel

// A Matrix is a view of floats in memory, row by row: element (i, j) is
// Data[i*Step+j], or Data[j*Step+i] if Transposed.
type Matrix struct {
	Data       []float32
	Step       int
	Transposed bool
}

// Gemm is the matrix product C = A·B, with a bias row or the old C added:
//
//	C[i*CStep+j] = add + Σp A(i, p) · B(p, j)     i < M, j < N, p < K
//
// where add is C itself (Accumulate), Bias[j], both, or nothing. Every element is
// one chain of multiply-adds over p, cut into slabs whose size depends on K alone:
// a row of C has the same bits whatever M, N, the storage order of the operands and
// the number of workers.
//
// A Gemm is made once and run many times; running it allocates nothing.
type Gemm struct {
	M, N, K    int // all above zero
	A, B       Matrix
	C          []float32
	CStep      int
	Bias       []float32 // N elements, or nil
	Accumulate bool
	// Work is scratch memory of at least Workspace elements.
	Work []float32

	path *routines
	// The part in progress: K from p0 to p0+kc, packed rows of A from m0, packed
	// columns of B from n0, in pieces of tm by tn.
	p0, kc, m0, ms, n0, ns int
	tm, tn                 int
	packedA, packedB       []float32
}

// Sizes in elements. A slab of K is at most slabK deep, so that a panel of A (12 by
// slabK) stays in the first-level cache; packed parts of A and B hold at most slabM
// rows and slabN columns. A piece of work is at most tileM by tileN: its operands fit
// in the second-level cache. Packing is handed out tileM rows or columns at a time.
const (
	slabK = 512
	slabM = 3072
	slabN = 4096
	tileM = 96
	tileN = 256
	// skinnyM is the number of rows up to which packing B for all workers costs
	// more than it saves.
	skinnyM = 48
)

// Workspace is the scratch memory, in elements, that a product of these sizes needs
// with so many workers.
func Workspace(m, n, k, workers int) int {
	kc := slabDepth(k)
	if m <= skinnyM {
		return workers * kc * maxCols
	}
	return kc * (roundUp(min(m, slabM), maxRows) + roundUp(min(n, slabN), maxCols))
}

// slabDepth cuts k into equal slabs of at most slabK, multiples of four.
func slabDepth(k int) int {
	slabs := max(1, ceil(k, slabK))
	return roundUp(ceil(k, slabs), 4)
}

func ceil(a, b int) int    { return (a + b - 1) / b }
func roundUp(a, b int) int { return ceil(a, b) * b }

// Run computes the product on the pool.
func (g *Gemm) Run(p *Pool) {
	g.path = active
	if g.Accumulate && g.Bias != nil {
		g.addBias()
	}
	if g.M <= skinnyM {
		p.Run(ceil(g.N, g.path.nr), (*skinny)(g))
		return
	}
	depth := slabDepth(g.K)
	for g.n0 = 0; g.n0 < g.N; g.n0 += slabN {
		g.ns = min(slabN, g.N-g.n0)
		for g.p0 = 0; g.p0 < g.K; g.p0 += depth {
			g.kc = min(depth, g.K-g.p0)
			g.slab(p)
		}
	}
}

// addBias adds the bias to the old C, for the rare product that has both.
func (g *Gemm) addBias() {
	for i := range g.M {
		row := g.C[i*g.CStep:][:g.N]
		Add(row, row, g.Bias)
	}
}

// slab multiplies one slab of K: it packs its columns of B, and then for each part
// of M packs A and computes the tiles.
func (g *Gemm) slab(p *Pool) {
	r := g.path
	g.packedB = g.Work
	g.packedA = g.Work[g.kc*roundUp(g.ns, r.nr):]
	for g.m0 = 0; g.m0 < g.M; g.m0 += slabM {
		g.ms = min(slabM, g.M-g.m0)
		pieces := ceil(g.ms, tileM)
		if g.m0 == 0 {
			pieces += ceil(g.ns, tileM)
		}
		p.Run(pieces, (*packing)(g))
		p.Run(g.cut(p.Workers()), (*tiling)(g))
	}
}

// cut chooses the size of the pieces, smaller ones where there would be too few for
// the workers, and returns their number. No bit of the result depends on it.
func (g *Gemm) cut(workers int) int {
	g.tm, g.tn = tileM, tileN
	for g.pieces() < 4*workers && g.tm > tileM/4 {
		if g.tn > tileN/4 {
			g.tn /= 2
		} else {
			g.tm /= 2
		}
	}
	return g.pieces()
}

func (g *Gemm) pieces() int { return ceil(g.ms, g.tm) * ceil(g.ns, g.tn) }

// packing is the job that packs: first the pieces of A, then those of B, each tileM
// rows or columns wide.
type packing Gemm

// Run packs one piece.
func (g *packing) Run(_, piece int) {
	r := g.path
	if i := piece * tileM; i < g.ms {
		g.A.pack(r, g.packedA[i*g.kc:], r.mr, g.m0+i, min(tileM, g.ms-i), g.p0, g.kc, !g.A.Transposed)
		return
	}
	i := (piece - ceil(g.ms, tileM)) * tileM
	g.B.pack(r, g.packedB[i*g.kc:], r.nr, g.n0+i, min(tileM, g.ns-i), g.p0, g.kc, g.B.Transposed)
}

// pack fills panels of kc rows of step elements: n elements from `first` on across
// them, from p0 on along them. along says that memory runs along the panels, so that
// it must be transposed.
func (m *Matrix) pack(r *routines, panels []float32, step, first, n, p0, kc int, along bool) {
	if along {
		for i := 0; i < n; i += step {
			r.packTranspose(&panels[i*kc], step, &m.Data[(first+i)*m.Step+p0], m.Step, kc, min(step, n-i))
		}
		return
	}
	whole := n / step
	if whole > 0 {
		r.packCopy(&panels[0], step, &m.Data[p0*m.Step+first], m.Step, kc, step, whole)
	}
	if i := whole * step; i < n {
		r.packCopy(&panels[i*kc], step, &m.Data[p0*m.Step+first+i], m.Step, kc, n-i, 1)
	}
}

// tiling is the job that multiplies packed panels, tm by tn a piece.
type tiling Gemm

// Run computes one piece. The panel of A stays in the first-level cache while the
// panels of B pass by from the second.
func (g *tiling) Run(_, piece int) {
	r, down := g.path, ceil(g.ms, g.tm)
	i0, j0 := piece%down*g.tm, piece/down*g.tn
	iEnd, jEnd := min(i0+g.tm, g.ms), min(j0+g.tn, g.ns)
	for i := i0; i < iEnd; i += r.mr {
		for j := j0; j < jEnd; j += r.nr {
			row, col := g.m0+i, g.n0+j
			add, addStep := (*Gemm)(g).addend(row, col)
			r.tiles(&r.tileCols, min(r.mr, iEnd-i), 1, g.kc, &g.packedA[i*g.kc], r.mr,
				&g.packedB[j*g.kc], r.nr, &g.C[row*g.CStep+col], g.CStep, min(r.nr, jEnd-j), add, addStep)
		}
	}
}

// addend is what a tile of the slab at p0 adds to its sums: the result of the slabs
// before, or else what the caller asked for.
func (g *Gemm) addend(row, col int) (*float32, int) {
	switch {
	case g.p0 > 0 || g.Accumulate:
		return &g.C[row*g.CStep+col], g.CStep
	case g.Bias != nil:
		return &g.Bias[col], 0
	}
	return nil, 0
}
