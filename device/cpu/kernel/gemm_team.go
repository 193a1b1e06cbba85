package kernel

import "sync/atomic"

// A member is the work in progress of one worker, so that other workers can help. Equal pieces
// of a matmul do not take equal time, since cores are disturbed by others, and many
// small ones would be packed again and again. So a worker that finds no piece left takes
// rows of a piece that another one still works at, and multiplies them by the columns
// that are packed there. No bit depends on who multiplies what.
type member struct {
	streams streams // of a streamed matmul
	block   block   // of the piece; changed only while it is closed and has no helpers
	open    atomic.Bool
	next    atomic.Int64 // the first row of the block's slab that nobody has taken
	helpers atomic.Int64
	_       [64]byte // what another worker writes is in another cache line
}

// finished counts a piece as finished, also one that panicked.
func (g *Gemm) finished(m *member) {
	m.open.Store(false)
	atomic.AddInt64(&g.left, -1)
}

// compute adds slab after slab of K to a block. Packed columns stay in the second-level
// cache while the rows pass by.
func (m *member) compute() {
	b, depth := &m.block, m.block.depth()
	for b.p0 = 0; b.p0 < b.K; b.p0 += depth {
		b.kc = min(depth, b.K-b.p0)
		if !b.columnsAsTheyLie() {
			b.packB(b.columns, b.path.nr, b.j0, b.jEnd-b.j0, b.p0, b.kc)
		}
		m.multiply()
	}
}

// multiply walks over the rows of a packed slab, together with whoever helps.
func (m *member) multiply() {
	m.next.Store(int64(m.block.i0))
	m.open.Store(true)
	m.takeRows(&m.block)
	m.open.Store(false)
	for i := 0; m.helpers.Load() > 0; i++ {
		pause(i)
	}
}

// takeRows takes rows, some at a time, until none are left, and says whether there were
// any. b is the block with scratch memory of the worker's own.
func (m *member) takeRows(b *block) (took bool) {
	for {
		i, end := m.take(b)
		if i >= end {
			return took
		}
		took = true
		for ; i < end; i += b.height() {
			b.rows(i, min(i+b.height(), end))
			if b.Finish != nil && b.p0+b.kc >= b.K {
				b.Finish(i, min(i+b.height(), end), b.j0, b.jEnd)
			}
		}
	}
}

// take takes the next rows: a strip, and toward the end of the block fewer and fewer where they need not be
// packed, so that those who share it end at the same time.
func (m *member) take(b *block) (first, end int) {
	for {
		i := m.next.Load()
		left := b.iEnd - int(i)
		if left <= 0 {
			return 0, 0
		}
		n := min(max(roundUp(left/(2*len(b.team)), b.path.mr), fewestRows, b.height()), stripM, left)
		if m.next.CompareAndSwap(i, i+int64(n)) {
			return int(i), int(i) + n
		}
	}
}

// fewestRows are some microseconds' work: a multiple of the rows of any tile.
const fewestRows = 12

// patience is how often a helper looks in vain before it leaves: about a millisecond, longer
// than columns are packed, but not as long as a core may be taken from its worker.
const patience = 10 * spins

// help works at what other workers work at until all pieces are finished.
func (g pieces) help(worker int) {
	strip, _ := g.scratchOf(worker)
	for i := 0; i < patience && atomic.LoadInt64(&g.left) > 0; i++ {
		for w := range g.team {
			if g.team[w].help(strip) {
				i = 0
			}
		}
		pause(i)
	}
}

// help takes rows of the slab in progress, if there are some. A helper counts itself before it
// looks for rows, so that the owner, who waits until nobody helps, never overlooks it.
func (m *member) help(strip []float32) (helped bool) {
	if !m.open.Load() {
		return false
	}
	m.helpers.Add(1)
	defer m.helpers.Add(-1)
	if !m.open.Load() {
		return false
	}
	b := m.block
	b.strip = strip
	return m.takeRows(&b)
}
