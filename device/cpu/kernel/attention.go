package kernel

import "math"

// Attention is softmax(scale·q·kᵀ + mask)·v for every head, computed in tiles so that
// the scores never exist as a whole. Heads share key-value heads in groups of
// Heads/KVHeads. Tensors are rows of a position's heads side by side:
//
//	Q, O [B T Heads·D]     K, V [B S KVHeads·D]     LSE [B Heads T]
//
// Query i stands at position i + S - T of the keys. It sees key j if all hold:
//
//	Causal    j is not after it
//	Window    j is one of the Window latest positions, its own included (0 for all)
//	Segments  Segments[b, its position] equals Segments[b, j]
//	KeyMask   KeyMask[b, j] is not zero
//
// and Mask[b, h, i, j] is added to its score. A query that sees nothing gives zeros, and
// minus infinity in LSE.
//
// A tile holds the scores of tileQ queries with tileKV keys, key by key: it is K·Qᵀ,
// its columns are what softmax sums over, and read the other way it is already in the
// order in which the matmul with V wants its left operand. Only Q is ever packed.
type Attention struct {
	B, T, S, Heads, KVHeads, D int
	Scale                      float32
	Causal                     bool
	Window                     int
	Segments, KeyMask          []int32   // [B S], or nil
	Mask                       []float32 // [B H T S], or nil
	// MaskSample and MaskHead are the elements between the masks of neighbouring samples and
	// heads, 0 where they share one.
	MaskSample, MaskHead int
	// Dropout, if not nil, multiplies attention weights; lines count [B Heads T].
	Dropout *WeightDropout

	Q, K, V, O []float32
	LSE        []float32
	// Work is scratch memory of at least Workspace elements.
	Work []float32

	path  *routines
	words []lineWords // by worker; made by the first launch with dropout
}

// start takes the routines of this CPU, and memory for the workers of the pool.
func (a *Attention) start(p *Pool) {
	a.path = active
	if a.Dropout != nil && len(a.words) < p.Workers() {
		a.words = make([]lineWords, p.Workers())
	}
}

const (
	tileQ  = 64
	tileKV = 96
	// fewQ is the number of queries up to which each score is a dot product of rows
	// instead of an element of a matmul of tiles, most of whose columns would be empty.
	fewQ = 4
	// lowest stands for the maximum of no scores: finite, so that differences are
	// numbers, and below any score.
	lowest = -1e30
)

// Workspace is the scratch memory, in elements, that so many workers need, for the
// forward and the backward pass alike.
func (a *Attention) Workspace(workers int) int { return workers * a.scratchSize() }

func (a *Attention) scratchSize() int { return 2*a.D*tileQ + 2*tileKV*tileQ + 4*tileQ }

// scratch is the memory of one worker.
type scratch struct {
	qT, doT []float32 // [D tileQ]: queries, and in the backward pass gradients of outputs
	s, ds   []float32 // [tileKV tileQ]: scores, then weights; their gradients
	top     []float32 // [tileQ]: running maximum, or log of the sum
	sum     []float32
	old     []float32
	delta   []float32
	lines   *lineWords // of dropout; nil without
}

// scratch of a worker, its vectors as long as the queries are wide.
func (a *Attention) scratch(worker int, q queries) scratch {
	rest := a.Work[worker*a.scratchSize():][:a.scratchSize()]
	take := func(room, size int) []float32 {
		part := rest[:size]
		rest = rest[room:]
		return part
	}
	matrix, tile := a.D*tileQ, tileKV*tileQ
	var lines *lineWords
	if a.Dropout != nil {
		lines = &a.words[worker]
	}
	return scratch{
		lines: lines, qT: take(matrix, matrix), doT: take(matrix, matrix), s: take(tile, tile), ds: take(tile, tile),
		top: take(tileQ, q.width), sum: take(tileQ, q.width), old: take(tileQ, q.width), delta: take(tileQ, q.width),
	}
}

// Forward computes O and LSE on the pool. A piece is a tile of queries of one head.
func (a *Attention) Forward(p *Pool) {
	a.start(p)
	p.Launch(a.B*a.Heads*ceil(a.T, tileQ), (*forward)(a))
}

type forward Attention

// Run computes one tile of queries.
func (f *forward) Run(worker, piece int) {
	a := (*Attention)(f)
	tiles := ceil(a.T, tileQ)
	b, h, i0 := piece/tiles/a.Heads, piece/tiles%a.Heads, piece%tiles*tileQ
	q := a.queries(b, h, i0)
	a.forwardTile(a.scratch(worker, q), q)
}

// queries is a tile of queries of one head: i0 to i0+n. They are the first columns
// of width, a multiple of lanesMost; what the others hold does not matter.
type queries struct{ b, h, i0, n, width int }

func (a *Attention) queries(b, h, i0 int) queries {
	n := min(tileQ, a.T-i0)
	return queries{b, h, i0, n, roundUp(n, lanesMost)}
}

// qAt and kvAt are where a position's head starts in Q, O and in K, V.
func (a *Attention) qAt(q queries, i int) int { return ((q.b*a.T+i)*a.Heads + q.h) * a.D }
func (a *Attention) kvAt(q queries, j int) int {
	return ((q.b*a.S+j)*a.KVHeads + q.h/(a.Heads/a.KVHeads)) * a.D
}

func (a *Attention) qStep() int  { return a.Heads * a.D }
func (a *Attention) kvStep() int { return a.KVHeads * a.D }

func (a *Attention) forwardTile(w scratch, q queries) {
	a.transpose(w.qT, a.Q[a.qAt(q, q.i0):], q)
	Scale(w.qT, w.qT, a.Scale)
	for i := range w.top {
		w.top[i], w.sum[i] = lowest, 0
	}
	first := true
	for j, end := a.keyRange(q); j < end; j += tileKV {
		n := min(tileKV, end-j)
		if !a.scores(w, q, j, n) {
			continue
		}
		copy(w.old, w.top)
		a.path.columnMax(w.top, &w.s[0], tileQ, n)
		a.rescale(w, q, first)
		a.path.columnExp(w.sum, w.top, &w.s[0], tileQ, n)
		a.drop(w, w.s, q, j, n)
		a.addValues(w, q, j, n, first)
		first = false
	}
	a.finish(w, q, first)
}

// transpose packs the rows of the queries as columns of dst [D tileQ]; the columns
// beyond are zero. A few queries are not packed: dst holds their rows.
func (a *Attention) transpose(dst, src []float32, q queries) {
	r, step := a.path, a.qStep()
	if q.n <= fewQ {
		for i := range q.n {
			copy(dst[i*a.D:][:a.D], src[i*step:])
		}
		return
	}
	if q.n < q.width {
		clear(dst)
	}
	for i := 0; i < q.n; i += r.nr {
		r.packTranspose(&dst[i], tileQ, &src[i*step], step, a.D, min(r.nr, q.n-i))
	}
}

// scores fills the tile of keys j to j+n with scores, or returns false if none of
// them is seen.
func (a *Attention) scores(w scratch, q queries, j, n int) bool {
	see := a.visible(q, j, n)
	if see == none {
		return false
	}
	a.matmuls(w.s, a.K[a.kvAt(q, j):], w.qT, q, j, n)
	if see == some {
		a.hide(w.s, q, j, n)
	}
	return true
}

// matmuls sets s [n tileQ] = rows·xT, rows being those of keys j to j+n of K or V and xT what
// transpose made. Some of what no query sees by position is left as it is, and set by hide.
func (a *Attention) matmuls(s, rows, xT []float32, q queries, j, n int) {
	r, step := a.path, a.kvStep()
	if q.n <= fewQ {
		for j := range n {
			for i := range q.n {
				s[j*tileQ+i] = r.dot(rows[j*step:][:a.D], xT[i*a.D:][:a.D])
			}
		}
		return
	}
	part := func(c, cols, from, to int) { // some columns of the keys from..to
		if from < to && cols > 0 {
			r.tiles(&r.tileRows, to-from, step, a.D, &rows[from*step], step, &xT[c], tileQ, &s[from*tileQ+c], tileQ, cols, nil, 0, fetch{})
		}
	}
	for c := 0; c < q.width; c += r.nr {
		// Later keys are seen by the second half of the columns alone, which takes half as long.
		cols, half := min(r.nr, q.width-c), r.nr/2
		both := min(roundUp(a.seenBefore(q, j, n, c+half), r.mr), n)
		part(c, cols, 0, both)
		part(c+half, cols-half, both, a.seenBefore(q, j, n, c+cols))
	}
}

// seenBefore is how many of the keys j to j+n, from the first on, the first c queries may see by position.
func (a *Attention) seenBefore(q queries, j, n, c int) int {
	if !a.Causal {
		return n
	}
	return min(max(q.i0+a.S-a.T+c-j, 0), n)
}

// rescale brings what was summed so far to the new maximum.
func (a *Attention) rescale(w scratch, q queries, first bool) {
	if first {
		return
	}
	for i := range w.old {
		w.old[i] -= w.top[i]
	}
	Exp(w.old, w.old)
	Mul(w.sum, w.sum, w.old)
	for i := range q.n {
		if w.old[i] != 1 {
			o := a.O[a.qAt(q, q.i0+i):][:a.D]
			Scale(o, o, w.old[i])
		}
	}
}

// addValues adds the weights in s times V to the outputs.
func (a *Attention) addValues(w scratch, q queries, j, n int, first bool) {
	a.addQueries(a.O, w.s, a.V, q, j, n, first)
}

// addQueries adds sᵀ·x to the rows of the queries, x being the rows of keys j to j+n; where it is the first tile there is
// nothing to add to. A panel of queries takes the keys that its last one may see by position.
func (a *Attention) addQueries(out, s, x []float32, q queries, j, n int, first bool) {
	r, o, from := a.path, out[a.qAt(q, q.i0):], x[a.kvAt(q, j):]
	for i := 0; i < q.n; i += r.mr {
		h := min(r.mr, q.n-i)
		seen := a.seenBefore(q, j, n, i+h)
		if seen == 0 && !first {
			continue
		}
		for c := 0; c < a.D; c += r.nr {
			at := &o[i*a.qStep()+c]
			add := at
			if first {
				add = nil
			}
			r.tiles(&r.tileCols, h, 1, seen, &s[i], tileQ, &from[c], a.kvStep(), at, a.qStep(), min(r.nr, a.D-c), add, a.qStep(), fetch{})
		}
	}
}

// finish divides the outputs by the sums and writes the logarithms.
func (a *Attention) finish(w scratch, q queries, empty bool) {
	lse := a.LSE[(q.b*a.Heads+q.h)*a.T+q.i0:]
	for i := range q.n {
		o := a.O[a.qAt(q, q.i0+i):][:a.D]
		if empty || w.sum[i] == 0 {
			clear(o)
			lse[i] = float32(math.Inf(-1))
			continue
		}
		Scale(o, o, 1/w.sum[i])
		lse[i] = w.top[i] + float32(math.Log(float64(w.sum[i])))
	}
}
