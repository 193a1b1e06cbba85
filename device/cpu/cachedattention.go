package cpu

import (
	"math"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

func init() { RegisterNative(op.CachedAttention, cachedAttention, nil) }

// cachedAttention stores the keys and values of all rows, then computes the heads that share a
// key-value head, for a run of rows of one sequence at a time. Keys and values are widened once
// for all of these. No result depends on which rows are computed together.
func cachedAttention(c op.Call, workers int) Program {
	a := newCachedAttention(c, workers)
	store := &rows{n: a.rows, step: 1, do: func(worker, from, to int) { a.store(worker, from) }}
	attend := &rows{step: 1, do: func(worker, from, to int) { a.attend(worker, a.runs[from/a.kv], from%a.kv) }}
	return Program{Workspace: bytesOf(workers * a.scratchSize()), Run: func(p *kernel.Pool, l *device.Launch) {
		for i, n := range []*elementView{&a.q, &a.k, &a.v, &a.keys, &a.values} {
			n.bind(l.Buffers[i])
		}
		a.positions, a.sequences, a.pages = ids(l, 5), ids(l, 6), ids(l, 7)
		a.o.bind(l.Buffers[10])
		a.work = scratch(l)
		p.LaunchWork(store.pieces(), store, 2*a.rows*a.kv*a.d)
		seen := a.cut()
		attend.n = len(a.runs) * a.kv
		p.LaunchWork(attend.pieces(), attend, 2*seen*a.heads*a.d)
	}}
}

// cacheAttention is a call of op.CachedAttention with its operands by name.
type cacheAttention struct {
	rows, heads, kv, d, window  int
	scale                       float32
	streams, table, count, page int // dimensions of pages; pages of the cache, positions of a page
	q, k, v, keys, values, o    elementView
	positions, sequences, pages []int32
	work                        []float32
	most                        int   // rows of a run
	runs                        []run // of the launch
	workers                     []cacheWorker
}

// run is n consecutive rows of a sequence at consecutive positions, or one idle row.
type run struct{ first, n, sequence, position int }

// queriesAtOnce is how many queries are computed together: enough that widening keys and values
// costs little.
const queriesAtOnce = 48

// cut finds the runs of a launch, and how many positions their rows see together.
func (a *cacheAttention) cut() (seen int) {
	a.runs = a.runs[:0]
	for i := range a.rows {
		sequence, position, ok := a.row(i)
		if !ok {
			a.runs = append(a.runs, run{i, 1, -1, -1})
			continue
		}
		seen += position + 1 - a.from(position)
		if n := len(a.runs); n > 0 {
			r := &a.runs[n-1]
			if r.sequence == sequence && r.position+r.n == position && r.n < a.most {
				r.n++
				continue
			}
		}
		a.runs = append(a.runs, run{i, 1, sequence, position})
	}
	return seen
}

func newCachedAttention(c op.Call, workers int) *cacheAttention {
	cache := c.In[3].Shape
	a := &cacheAttention{
		rows: int(c.In[0].Shape[1]), heads: int(c.Attr.Heads), kv: int(c.Attr.KVHeads), d: int(cache[3]), window: int(c.Attr.Window),
		scale: float32(c.Attr.Scale), streams: int(c.In[7].Shape[0]), table: int(c.In[7].Shape[1]), count: int(cache[0]), page: int(cache[2]),
	}
	for i, n := range []*elementView{&a.q, &a.k, &a.v, &a.keys, &a.values} {
		*n = newElementView(c.In[i])
	}
	a.o = newElementView(c.Out[2])
	a.most = max(1, min(a.rows, queriesAtOnce/(a.heads/a.kv)))
	a.runs = make([]run, 0, a.rows)
	for range workers {
		a.workers = append(a.workers, cacheWorker{cacheAttention: a, tops: make([]float32, a.queries()), sums: make([]float64, a.queries())})
	}
	return a
}

// queries is how many queries a run has at most.
func (a *cacheAttention) queries() int { return a.most * (a.heads / a.kv) }

// seen is how many positions of a chunk a query sees at most.
func (a *cacheAttention) seen() int { return min(op.CacheChunk, a.table*a.page) }

// scratchSize is what a worker needs: for each query its elements, two sums of values, and the
// scores of a chunk; keys transposed, and rows of keys or values.
func (a *cacheAttention) scratchSize() int {
	return a.queries()*(3*a.d+a.seen()) + 2*kernel.KeysAtOnce*a.d
}

func (a *cacheAttention) row(i int) (sequence, position int, ok bool) {
	sequence, position = int(a.sequences[i]), int(a.positions[i])
	return sequence, position, sequence >= 0 && sequence < a.streams && position >= 0
}

// at is where a head of a position begins in the cache.
func (a *cacheAttention) at(sequence, position, head int) int {
	page := min(max(int(a.pages[sequence*a.table+position/a.page%a.table]), 0), a.count-1)
	return ((page*a.kv+head)*a.page + position%a.page) * a.d
}

// store writes the keys and values of row i to their place.
func (a *cacheAttention) store(worker, i int) {
	sequence, position, ok := a.row(i)
	if !ok {
		return
	}
	x := a.work[worker*a.scratchSize():][:a.d]
	for h := range a.kv {
		at, from := a.at(sequence, position, h), (i*a.kv+h)*a.d
		a.k.load(x, from)
		a.keys.store(x, at)
		a.v.load(x, from)
		a.values.store(x, at)
	}
}

// cacheWorker is what a worker has in hand: a run of rows with one key-value head. Queries are
// row by row, the heads of a row side by side.
type cacheWorker struct {
	*cacheAttention
	run
	head, group  int       // the key-value head, and how many heads share it
	q            []float32 // [queries d]
	part, total  []float32 // [queries d]: sums of values, of a chunk and of all chunks
	scores       []float32 // [queries seen], from position low on
	keyed, plain []float32 // [d KeysAtOnce] keys, [KeysAtOnce d] keys or values
	tops         []float32 // by query: the largest score, and the sum of weights
	sums         []float64
	low, end     int // positions of the chunk that the run sees
}

// attend computes the heads of a run that share a key-value head: chunk after chunk of positions
// with its own maximum and sum, added to what was before in the order of the chunks.
func (a *cacheAttention) attend(worker int, r run, head int) {
	w := &a.workers[worker]
	w.run, w.head, w.group = r, head, a.heads/a.kv
	w.begin(a.work[worker*a.scratchSize():][:a.scratchSize()])
	if r.sequence >= 0 {
		last := r.position + r.n - 1
		for w.low = a.from(r.position); w.low <= last; w.low = w.end {
			w.end = min(last+1, (w.low/op.CacheChunk+1)*op.CacheChunk, w.low+a.seen())
			w.chunk()
		}
	}
	for u := range r.n * w.group {
		total := w.total[u*a.d:][:a.d]
		if w.sums[u] != 0 {
			kernel.Scale(total, total, float32(1/w.sums[u]))
		}
		a.o.store(total, w.at(u))
	}
}

// from is the first position that a row sees.
func (a *cacheAttention) from(position int) int {
	if a.window > 0 {
		return max(0, position-a.window+1)
	}
	return 0
}

// at is where a query begins in q, and its result in o.
func (w *cacheWorker) at(query int) int {
	return ((w.first+query/w.group)*w.heads + w.head*w.group + query%w.group) * w.d
}

// begin takes scratch memory and the queries.
func (w *cacheWorker) begin(rest []float32) {
	take := func(n int) []float32 {
		part := rest[:n]
		rest = rest[n:]
		return part
	}
	n := w.n * w.group
	w.q, w.part, w.total, w.scores = take(n*w.d), take(n*w.d), take(n*w.d), take(n*w.seen())
	w.keyed, w.plain = take(kernel.KeysAtOnce*w.d), take(kernel.KeysAtOnce*w.d)
	clear(w.total)
	for u := range n {
		w.tops[u], w.sums[u] = float32(math.Inf(-1)), 0
		w.cacheAttention.q.load(w.q[u*w.d:][:w.d], w.at(u))
	}
	kernel.Scale(w.q, w.q, w.scale)
}

// chunk adds the positions from low to end.
func (w *cacheWorker) chunk() {
	queries := w.n * w.group
	for j := w.low; j < w.end; {
		n := w.transposeKeys(j)
		kernel.Scores(w.scores[j-w.low:], w.seen(), w.q, queries, w.d, w.keyed, n)
		j += n
	}
	for row := range w.n {
		position := w.position + row
		from, end := max(w.low, w.from(position))-w.low, min(w.end, position+1)-w.low
		for u := row * w.group; u < (row+1)*w.group; u++ {
			w.weigh(u, w.scores[u*w.seen():][:w.end-w.low], from, end)
		}
	}
	clear(w.part)
	for j := w.low; j < w.end; {
		values, n := w.readValues(j)
		kernel.AddValues(w.part, w.scores[j-w.low:], w.seen(), queries, values, n, w.d)
		j += n
	}
	kernel.AddScaled(w.total, w.part, 1)
}

// together is how many positions of the chunk from j on are summed together: up to a multiple
// of KeysAtOnce, whatever the pages. inPage is how many of n are in the page of j.
func (w *cacheWorker) together(j int) int {
	return min(w.end-j, kernel.KeysAtOnce-j%kernel.KeysAtOnce)
}

func (w *cacheWorker) inPage(j, n int) int { return min(n, w.page-j%w.page) }

// transposeKeys puts the keys of some positions from j on into keyed.
func (w *cacheWorker) transposeKeys(j int) (n int) {
	n = w.together(j)
	for i := 0; i < n; {
		part, at := w.inPage(j+i, n-i), w.cacheAttention.at(w.sequence, j+i, w.head)
		if narrow(w.keys.of) {
			kernel.TransposeNarrowKeys(w.keyed[i:], w.keys.halves[at:], w.keys.of, part, w.d)
		} else {
			kernel.TransposeKeys(w.keyed[i:], w.keys.rows(w.plain, at, part, w.d), part, w.d)
		}
		i += part
	}
	return n
}

// readValues is the values of some positions from j on: in place, where they are in f32 in one
// page.
func (w *cacheWorker) readValues(j int) (values []float32, n int) {
	n = w.together(j)
	if w.inPage(j, n) == n {
		return w.values.rows(w.plain, w.cacheAttention.at(w.sequence, j, w.head), n, w.d), n
	}
	for i := 0; i < n; {
		part, at := w.inPage(j+i, n-i), w.cacheAttention.at(w.sequence, j+i, w.head)
		copy(w.plain[i*w.d:], w.values.rows(w.plain[i*w.d:], at, part, w.d)[:part*w.d])
		i += part
	}
	return w.plain, n
}

// weigh turns the scores of a query into weights of the values, relative to the largest score
// so far, and brings what was summed before to that. The query sees from..end of them.
func (w *cacheWorker) weigh(query int, scores []float32, from, end int) {
	if from >= end {
		clear(scores)
		return
	}
	seen := scores[from:end]
	high := max(w.tops[query], kernel.Max(seen), -math.MaxFloat32)
	more := kernel.ExpSum(seen, seen, high)
	clear(scores[:from])
	clear(scores[end:])
	if old := float32(math.Exp(float64(w.tops[query] - high))); old != 1 {
		total := w.total[query*w.d:][:w.d]
		kernel.Scale(total, total, old)
		w.sums[query] *= float64(old)
	}
	w.sums[query] += more
	w.tops[query] = high
}

// elementView reads and writes a tensor as f32, some elements at a time.
type elementView struct {
	of     dtype.Type
	n      int // elements
	wide   []float32
	halves []uint16
	raw    []byte
}

func newElementView(t op.Type) elementView {
	return elementView{of: t.DType, n: int(t.Shape.Elements())}
}

func (n *elementView) bind(b device.Buffer) {
	switch {
	case n.of == dtype.F32:
		n.wide = view[float32](b)
	case narrow(n.of):
		n.halves = view[uint16](b)
	default:
		n.raw = b.Host()
	}
}

// load reads len(dst) elements from the at-th on; of a type with a scale per row, a row.
func (n *elementView) load(dst []float32, at int) {
	switch {
	case n.of == dtype.F32:
		copy(dst, n.wide[at:])
	case narrow(n.of):
		widening[n.of](dst, n.halves[at:at+len(dst)])
	default:
		quant.ReadRow(n.of, dst, n.raw, n.n, at/len(dst))
	}
}

// rows is n rows of d elements from the at-th element on: in place, or read into dst.
func (n *elementView) rows(dst []float32, at, count, d int) []float32 {
	switch {
	case n.of == dtype.F32:
		return n.wide[at : at+count*d]
	case narrow(n.of):
		n.load(dst[:count*d], at)
	default: // with a scale each
		for i := range count {
			n.load(dst[i*d:(i+1)*d], at+i*d)
		}
	}
	return dst
}

// store writes elements from the at-th on, rounded.
func (n *elementView) store(src []float32, at int) {
	switch {
	case n.of == dtype.F32:
		copy(n.wide[at:], src)
	case narrow(n.of):
		narrowing[n.of](n.halves[at:at+len(src)], src)
	default:
		quant.EncodeRow(n.of, n.raw, n.n, at/len(src), src)
	}
}
