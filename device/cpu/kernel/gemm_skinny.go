package kernel

// skinny is the matmul with few rows, as in decoding: it reads every weight once
// and multiplies it by a handful of rows, so nothing is packed for others to use. A
// piece is one panel of columns. If memory runs along the columns of B the panel is
// transposed into the worker's own scratch, slab by slab, and one in 16 bits is widened
// there; otherwise it is read where it lies.
type skinny struct{ *Gemm }

// narrowN is how many columns are transposed at a time for at most fewM rows: then
// reading B takes most of the time, and scratch memory is better saved.
const (
	fewM    = 2 * maxRows
	narrowN = 32
)

// width is how many columns a panel has.
func (g skinny) width() int {
	if g.B.Transposed && g.M <= fewM {
		return min(g.path.nr, narrowN)
	}
	return g.path.nr
}

// skinnyScratch is what one worker needs for a panel.
func (g *Gemm) skinnyScratch() int {
	switch {
	case !g.B.Transposed && !g.B.narrow():
		return 0
	case g.B.Transposed && g.M <= fewM:
		return g.depth() * narrowN
	}
	return g.depth() * maxCols
}

// Run computes one panel of columns.
func (g skinny) Run(worker, piece int) {
	depth, width := g.depth(), g.width()
	col := piece * width
	cols := min(width, g.N-col)
	scratch := g.Work[worker*g.skinnyScratch():]
	g.begin(0, g.M, col, col+cols)
	for p0 := 0; p0 < g.K; p0 += depth {
		kc := min(depth, g.K-p0)
		if g.B.Transposed || g.B.narrow() {
			g.packB(scratch, width, col, cols, p0, kc)
			g.multiply(p0, kc, col, cols, &scratch[0], width)
		} else {
			g.multiply(p0, kc, col, cols, &g.B.Data[p0*g.B.Step+col], g.B.Step)
		}
	}
	g.round(0, g.M, col, col+cols)
}

// multiply adds one slab of K to the columns from col.
func (g skinny) multiply(p0, kc, col, cols int, b *float32, bStep int) {
	r := g.path
	add, addStep := g.addend(p0, 0, col)
	if g.A.Transposed {
		r.tiles(&r.tileCols, g.M, 1, kc, &g.A.Data[p0*g.A.Step], g.A.Step, b, bStep, &g.C[col], g.CStep, cols, add, addStep, fetch{})
		return
	}
	r.tiles(&r.tileRows, g.M, g.A.Step, kc, &g.A.Data[p0], g.A.Step, b, bStep, &g.C[col], g.CStep, cols, add, addStep, fetch{})
}
