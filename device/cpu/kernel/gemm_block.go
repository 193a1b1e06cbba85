package kernel

// pieces is the job of a matmul with many rows: a piece of C for a worker. The pieces
// after the last are for workers that find none left: they help the others.
type pieces struct{ *Gemm }

// Run computes one piece, block by block, or helps.
func (g pieces) Run(worker, piece int) {
	if piece >= g.pieces {
		g.help(worker)
		return
	}
	down, mine := ceil(g.M, g.tm), &g.team[worker]
	defer g.finished(mine)
	i, j := piece%down*g.tm, piece/down*g.tn
	mine.block = block{Gemm: g.Gemm, i0: i, iEnd: min(i+g.tm, g.M)}
	b := &mine.block
	b.strip, b.columns = g.scratchOf(worker)
	end := min(j+g.tn, g.N)
	width := roundUp(ceil(end-j, ceil(end-j, g.blockN())), g.path.nr)
	for b.j0 = j; b.j0 < end; b.j0 = b.jEnd {
		b.jEnd = min(b.j0+width, end)
		g.begin(b.i0, b.iEnd, b.j0, b.jEnd)
		mine.compute()
		g.round(b.i0, b.iEnd, b.j0, b.jEnd)
	}
}

// scratchOf is the scratch memory of a worker: for rows of A and for columns of B.
func (g *Gemm) scratchOf(worker int) (strip, columns []float32) {
	size, cut := g.scratch(), g.stripScratch()
	own := g.Work[worker*size:][:size]
	return own[:cut], own[cut:]
}

// scratch is what one worker needs: a strip and the packed columns of a block.
func (g *Gemm) scratch() int {
	n := min(roundUp(g.N, maxCols), g.blockN())
	if g.B.Patches != nil {
		return g.stripScratch() + (g.depth()+1)*n // and a row of them
	}
	return g.stripScratch() + g.depth()*n
}

func (g *Gemm) stripScratch() int {
	if !g.A.Transposed && g.A.Patches == nil {
		return 0
	}
	return g.depth() * stripM
}

// block is a part of C in progress: rows i0 to iEnd, columns j0 to jEnd. The slab of K
// from p0 to p0+kc is added next.
type block struct {
	*Gemm
	i0, iEnd, j0, jEnd int
	p0, kc             int
	columns            []float32 // columns of B, packed
	strip              []float32 // rows of A, packed, where they cannot be read as they lie
}

// stripM is how many rows are taken, and packed, at a time: a multiple of the rows of any
// tile.
const stripM = 48

// height is how many rows are made ready at a time: a panel, which stays in the
// first-level cache, or as many as make packing read whole lines.
func (b *block) height() int {
	if b.A.Transposed || b.A.Patches != nil {
		return stripM
	}
	return b.path.mr
}

// rows multiplies rows i to end, a panel at a time.
func (b *block) rows(i, end int) {
	r, s, tile, first, next := b.path, b.ready(i, end), 0, i, end
	for ; i < end; i += r.mr {
		if b.A.Patches != nil {
			s.data, s.step = b.windows(i, min(i+r.mr, end))
			s.rowStep, tile, next = s.step, 0, i+r.mr
		}
		j := b.j0
		if whole := (b.jEnd - j) / r.nr; s.line != nil && end-i >= r.mr && whole > 0 && !b.columnsAsTheyLie() {
			add, addStep := b.addend(b.p0, i, j)
			s.line(b.kc, &s.data[0], s.step, &b.columns[0], &b.C[i*b.CStep+j], b.CStep, add, addStep, whole, b.later(first, i, end, whole))
			j += whole * r.nr
		}
		for ; j < b.jEnd; j += r.nr {
			add, addStep := b.addend(b.p0, i, j)
			columns, colStep := b.panel(j)
			r.tiles(s.tiles, min(r.mr, end-i), s.rowStep, b.kc, &s.data[0], s.step, columns, colStep,
				&b.C[i*b.CStep+j], b.CStep, min(r.nr, b.jEnd-j), add, addStep, b.ahead(next, tile))
			tile++
		}
		s.data = s.data[min(s.panel, len(s.data)):]
	}
}

// panel is where the columns of B from j on are, and how far their rows are apart.
func (b *block) panel(j int) (*float32, int) {
	if b.columnsAsTheyLie() {
		return &b.B.Data[b.p0*b.B.Step+j], b.B.Step
	}
	return &b.columns[(j-b.j0)*b.kc], b.path.nr
}

// later is what the line of rows i on, of whole panels and of a strip from first to end, fetches of the rows that come next.
func (b *block) later(first, i, end, whole int) later {
	if b.A.Patches != nil {
		return b.windowsLater(i+b.path.mr, whole)
	}
	if b.path.linePairs {
		return b.pairsLater(first, i, end, whole)
	}
	// Rows that are packed are fetched a strip ahead, a quarter of the slab by each of four lines.
	switch next, part := first+stripM, (i-first)/b.path.mr; {
	case !b.A.Transposed:
		if next = i + b.path.mr; next < b.iEnd {
			return later{&b.A.Data[next*b.A.Step+b.p0], b.A.Step, 4, min(b.path.mr, b.iEnd-next), 0}
		}
	case next < b.iEnd && part < 4:
		return later{&b.A.Data[(b.p0+part*(b.kc/4))*b.A.Step+next], lineFloats, b.A.Step, stripM/lineFloats + 1, 0}
	}
	return later{}
}

// pairsLater is later with linePairs: what the tiles of the line would fetch one by one, see ahead.
func (b *block) pairsLater(first, i, end, whole int) later {
	tile := (i - first) / b.path.mr * whole
	f := b.ahead(end, tile)
	if f.from == nil {
		return later{}
	}
	along := !b.A.Transposed
	parts, panel := fetchParts(min(end+b.height(), b.iEnd)-end, along)-tile, 2*b.A.Step
	if !along {
		parts, panel = min(parts, fetchDeep-tile%fetchDeep), b.kc/fetchDeep*b.A.Step
	}
	return later{f.from, panel, f.next, min(parts, whole), f.pair}
}

// windowsLater is what a line fetches of the windows from i on, which come next: of those of a panel that lie side by side.
func (b *block) windowsLater(i, whole int) later {
	p, n := b.A.Patches, min(b.path.mr, b.iEnd-i)
	if n <= 0 {
		return later{}
	}
	if first, _ := p.inside(i, n); 2*first >= n { // the others are in the next line
		n = first
	} else {
		i, n = i+first, n-first
	}
	data, step := p.asTheyLie(i, n, b.p0, b.kc)
	switch {
	case data == nil:
		return later{}
	case b.path.linePairs:
		return later{&data[0], 2 * step, lineFloats, min(n/2, whole), step}
	}
	return later{&data[0], step, 4, n, 0}
}

// lineFloats is how many elements a cache line has.
const lineFloats = 16

// ahead is the part that a tile fetches of the rows from i on, which come next.
func (b *block) ahead(i, tile int) fetch {
	if b.A.Patches != nil {
		if row := i + 2*tile; b.kc >= lineFloats && 2*tile < b.path.mr && row+1 < b.iEnd {
			return b.A.Patches.fetch(row, b.p0, b.kc)
		}
		return fetch{}
	}
	if end := min(i+b.height(), b.iEnd); tile < fetchParts(end-i, !b.A.Transposed) {
		return b.A.fetch(i, b.p0, b.kc, tile, !b.A.Transposed)
	}
	return fetch{}
}

// strip is where tiles read rows of A.
type strip struct {
	tiles   *[maxRows + 1]tileFunc
	line    lineFunc // nil where whole tiles are computed one by one
	data    []float32
	panel   int // elements from one panel of rows to the next
	rowStep int // from row to row of a panel
	step    int // see tileFunc
}

// ready makes rows i to end of A ready. They are read where they lie, but for windows and, where tiles are not
// wide or not whole, rows stored by columns, which are packed.
func (b *block) ready(i, end int) strip {
	r := b.path
	if b.A.Patches != nil {
		return strip{tiles: &r.tileRows, line: r.lineRows} // see windows
	}
	if b.A.Transposed && r.wideTiles() && b.jEnd-b.j0 >= r.nr {
		return strip{&r.tileCols, r.lineCols, b.A.Data[b.p0*b.A.Step+i:], r.mr, 1, b.A.Step}
	}
	if b.A.Transposed {
		b.A.pack(r, b.strip, r.mr, i, end-i, b.p0, b.kc, false)
		return strip{&r.tileCols, r.lineCols, b.strip, r.mr * b.kc, 1, r.mr}
	}
	return strip{&r.tileRows, r.lineRows, b.A.Data[i*b.A.Step+b.p0:], r.mr * b.A.Step, b.A.Step, b.A.Step}
}

// windows are rows i to end of windows, and how far they are apart: as they lie in memory, or copied.
func (b *block) windows(i, end int) ([]float32, int) {
	if data, step := b.A.Patches.asTheyLie(i, end-i, b.p0, b.kc); data != nil {
		return data, step
	}
	for k := i; k < end; k++ {
		b.A.Patches.Take(b.strip[(k-i)*b.kc:][:b.kc], k, b.p0)
	}
	return b.strip, b.kc
}
