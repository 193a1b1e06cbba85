package kernel

// GemmBatch is many matmuls of the same sizes. Where there are enough of them each worker computes whole
// ones, so that they need not wait for each other; few are computed one after the other by all workers.
// Both give the same bits, since those of a Gemm do not depend on the number of workers.
type GemmBatch struct {
	Gemm // of one matmul: sizes, and how rows lie
	// At is where the matrices of each matmul begin in Left, Right and Out, which hold all of them.
	At               [][3]int
	Left, Right, Out []float32

	alone []worker // by worker of the pool
}

// worker is what one worker computes with: a matmul of its own, on a pool of itself.
type worker struct {
	gemm Gemm
	pool *Pool
}

// Workspace is the scratch memory, in elements, that so many workers need.
func (g *GemmBatch) Workspace(workers int) int {
	if g.shared(workers) {
		return g.Gemm.Workspace(workers)
	}
	return workers * g.Gemm.Workspace(1)
}

// shared says that a matmul is computed by all workers.
func (g *GemmBatch) shared(workers int) bool { return len(g.At) < 2*workers }

// Run computes all matmuls on the pool.
func (g *GemmBatch) Run(p *Pool) {
	if g.shared(p.Workers()) {
		for _, at := range g.At {
			g.place(&g.Gemm, at)
			g.Gemm.Run(p)
		}
		return
	}
	if g.alone == nil {
		g.alone = make([]worker, p.Workers())
		for w := range g.alone {
			g.alone[w] = worker{g.Gemm, NewPool(1)}
		}
	}
	each := len(g.Work) / len(g.alone)
	for w := range g.alone {
		g.alone[w].gemm.Work = g.Work[w*each:][:each]
	}
	p.LaunchWork(ceil(len(g.At), g.together()), (*matmulsAlone)(g), len(g.At)*g.M*g.N*g.K)
}

// together is how many matmuls a piece has: those of a little work, which takes longer than sharing it.
func (g *GemmBatch) together() int { return max(littleWork/(g.M*g.N*g.K), 1) }

// place sets the operands of a matmul.
func (g *GemmBatch) place(one *Gemm, at [3]int) {
	one.A.Data, one.B.Data, one.C = g.Left[at[0]:], g.Right[at[1]:], g.Out[at[2]:]
}

// matmulsAlone computes some matmuls of the batch as a piece.
type matmulsAlone GemmBatch

func (j *matmulsAlone) Run(w, piece int) {
	g, one := (*GemmBatch)(j), &j.alone[w]
	first := piece * g.together()
	list := g.At[first:min(first+g.together(), len(g.At))]
	if g.isPlain() {
		g.plain(active, list)
		return
	}
	for _, at := range list {
		g.place(&one.gemm, at)
		one.gemm.Run(one.pool)
	}
}

// isPlain says that a matmul is skinny, in one slab, and has nothing to pack or add: calling its tiles takes less time than all that
// a Gemm looks at.
func (g *GemmBatch) isPlain() bool {
	return g.isSkinny() && g.K <= g.depth() && !g.B.Transposed && !g.B.narrow() && !g.Accumulate && g.Bias == nil && g.Plus == nil && g.Finish == nil
}

// plain computes some matmuls as skinny does.
func (g *GemmBatch) plain(r *routines, list [][3]int) {
	fs, rowStep := &r.tileRows, g.A.Step
	if g.A.Transposed {
		fs, rowStep = &r.tileCols, 1
	}
	for _, at := range list {
		a := &g.Left[at[0]]
		for col := 0; col < g.N; col += r.nr {
			r.tiles(fs, g.M, rowStep, g.K, a, g.A.Step, &g.Right[at[1]+col], g.B.Step, &g.Out[at[2]+col], g.CStep, min(r.nr, g.N-col), nil, 0, fetch{})
		}
	}
}
