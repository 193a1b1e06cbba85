package kernel

import "unsafe"

// streamed is the matmul of very few rows with a weight in 16 bits whose memory runs along K.
// The weight is read once, and only from memory to registers. A stream is one slab of K of a
// few columns, and four streams are multiplied at once; they are slabs of the same columns where
// there are enough, so that memory is read almost in order. Elements have the chain of
// multiply-adds that they have in other matmuls.
type streamed struct{ *Gemm }

// streamedM is up to how many rows a matmul is computed this way.
const streamedM = 3

// isStreamed says that a matmul is computed this way.
func (g *Gemm) isStreamed() bool {
	return g.M <= streamedM && g.N >= maxStreamCols && g.K%8 == 0 &&
		g.B.narrow() && g.B.Transposed && !g.B.Interleaved && !g.B.words && !g.A.Transposed
}

// columns is how many columns a piece has.
func (g streamed) columns() int { return streamsAtOnce * g.path.half(g.B.Type).width }

func (g *Gemm) slabs() int { return ceil(g.K, g.depth()) }

// streamedScratch is what one worker needs: the sums of each slab, and those that nobody wants.
func (g *Gemm) streamedScratch() int {
	return (g.slabs()*streamsAtOnce + 1) * maxStreamRows * maxStreamCols
}

// Run computes a panel of columns.
func (g streamed) Run(worker, piece int) {
	h, wide := g.path.half(g.B.Type), g.columns()
	first := min(piece*wide, g.N-h.width) // the last columns may be computed twice, but are stored once
	p := panel{
		Gemm: g.Gemm, half: h, streams: &g.team[worker].streams, wide: wide,
		from: piece * wide, to: min((piece+1)*wide, g.N), first: first,
		sums: g.Work[worker*g.streamedScratch():][:g.streamedScratch()],
	}
	g.begin(0, g.M, p.from, p.to)
	for i := 0; i < g.M; {
		n := p.most(g.M - i)
		p.rows(i, n)
		i += n
	}
	g.round(0, g.M, p.from, p.to)
}

// panel is the columns from..to of a streamed matmul. Columns are computed from first on.
type panel struct {
	*Gemm
	half            *half
	streams         *streams
	wide            int
	from, to, first int
	sums            []float32 // [row slab column], then nowhere
}

// most is how many of n rows are multiplied at once.
func (p *panel) most(n int) int {
	h := min(n, maxStreamRows)
	for p.half.streams[h] == nil {
		h--
	}
	return h
}

// rows multiplies n rows from i on.
func (p *panel) rows(i, n int) {
	h, s, slabs, depth := p.half, p.streams, p.slabs(), p.depth()
	clear(p.sums[:n*p.sumStep()])
	tasks := ceil(p.to-p.first, h.width) * slabs
	for t := 0; t < tasks; t += streamsAtOnce {
		var ks [streamsAtOnce]int
		common := depth
		for q := range streamsAtOnce {
			task, sums := t+q, p.nowhere()
			if task < tasks {
				sums = task%slabs*p.wide + task/slabs*h.width
			}
			task = min(task, tasks-1)
			at := task % slabs * depth
			s.b[q] = &p.B.Codes[p.column(task/slabs)*p.B.Step+at]
			s.a[q], s.sums[q] = &p.A.Data[i*p.A.Step+at], &p.sums[sums]
			ks[q] = min(depth, p.K-at)
			common = min(common, ks[q])
		}
		p.half.streams[n](common, s, p.B.Step, p.A.Step, p.sumStep(), p.later(i, t))
		p.rest(n, common, ks)
	}
	for row := range n {
		p.store(i+row, p.sums[row*p.sumStep():])
	}
}

// nowhere is where sums go that nobody wants, sumStep from row to row of the sums.
func (p *panel) nowhere() int { return p.slabs() * p.wide }
func (p *panel) sumStep() int { return p.nowhere() + p.half.width }

// column is where a group of columns begins: so that it is whole.
func (p *panel) column(group int) int { return min(p.first+group*p.half.width, p.to-p.half.width) }

// rest multiplies what slabs have that are longer than the last one.
func (p *panel) rest(n, done int, ks [streamsAtOnce]int) {
	s := p.streams
	streams := *s
	for q, k := range ks {
		if k == done {
			continue
		}
		for other := range streamsAtOnce {
			s.b[other], s.a[other] = codeAt(streams.b[q], done), at(streams.a[q], done)
			s.sums[other] = &p.sums[p.nowhere()]
		}
		s.sums[0] = streams.sums[q]
		p.half.streams[n](k-done, s, p.B.Step, p.A.Step, p.sumStep(), uintptr(unsafe.Pointer(s.b[0])))
	}
}

// fetchedAhead is how many bytes more than the slabs of some columns are fetched in front.
const fetchedAhead = 32 << 10

// later is where to read on from memory while the streams from the t-th on are multiplied: in
// front of them or, at the end of the panel, in the one that this worker probably takes next.
func (p *panel) later(i, t int) uintptr {
	if i > 0 { // the panel is in the cache
		return uintptr(unsafe.Pointer(p.streams.b[0]))
	}
	columns := 2 * p.half.width * p.B.Step // bytes
	at, size := t*p.depth()*2*p.half.width+columns+fetchedAhead, streamsAtOnce*columns
	if at >= size {
		at += (len(p.team) - 1) * size
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(p.B.Codes))) + uintptr(2*p.first*p.B.Step+at)
}

// store writes row i of C: what was asked to be added, and slab after slab.
func (p *panel) store(i int, sums []float32) {
	whole := p.first + (p.to-p.first)/p.half.width*p.half.width
	p.storeColumns(i, p.from, whole, sums[p.from-p.first:])
	if p.to > whole { // the last group begins earlier than where it is stored
		p.storeColumns(i, whole, p.to, sums[whole-p.first+whole-p.column((whole-p.first)/p.half.width):])
	}
}

func (p *panel) storeColumns(i, from, to int, sums []float32) {
	row := p.C[i*p.CStep:][from:to]
	for slab := range p.slabs() {
		sum := sums[slab*p.wide:][:len(row)]
		switch {
		case slab > 0 || p.Accumulate:
			p.path.add(row, sum, row)
		case p.Plus != nil:
			p.path.add(row, sum, p.Plus[i*p.CStep:][from:to])
		case p.Bias != nil:
			p.path.add(row, sum, p.Bias[from:to])
		default:
			copy(row, sum)
		}
	}
}
