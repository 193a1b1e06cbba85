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

// cachedAttention stores the keys and values of all rows, then computes every head of every
// row by itself, so that no result depends on the other rows.
func cachedAttention(c op.Call, workers int) Program {
	a := newCachedAttention(c)
	store := &rows{n: a.rows, step: 1, do: func(worker, from, to int) { a.store(worker, from) }}
	attend := &rows{n: a.rows * a.heads, step: 1, do: func(worker, from, to int) { a.attend(worker, from/a.heads, from%a.heads) }}
	return Program{Workspace: bytesOf(workers * a.scratchSize()), Run: func(p *kernel.Pool, l *device.Launch) {
		for i, n := range []*elementView{&a.q, &a.k, &a.v, &a.keys, &a.values} {
			n.bind(l.Buffers[i])
		}
		a.positions, a.sequences, a.pages = ids(l, 5), ids(l, 6), ids(l, 7)
		a.o.bind(l.Buffers[10])
		a.work = scratch(l)
		store.start(p)
		attend.start(p)
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
}

func newCachedAttention(c op.Call) *cacheAttention {
	cache := c.In[3].Shape
	a := &cacheAttention{
		rows: int(c.In[0].Shape[1]), heads: int(c.Attr.Heads), kv: int(c.Attr.KVHeads), d: int(cache[3]), window: int(c.Attr.Window),
		scale: float32(c.Attr.Scale), streams: int(c.In[7].Shape[0]), table: int(c.In[7].Shape[1]), count: int(cache[0]), page: int(cache[2]),
	}
	for i, n := range []*elementView{&a.q, &a.k, &a.v, &a.keys, &a.values} {
		*n = newElementView(c.In[i])
	}
	a.o = newElementView(c.Out[2])
	return a
}

// scratchSize is what a worker needs: a query, a key or value, two sums of values, the
// scores of a chunk.
func (a *cacheAttention) scratchSize() int { return 4*a.d + op.CacheChunk }

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

// attend computes one head of row i: chunk after chunk of positions with its own maximum
// and sum, added to what was before in the order of the chunks.
func (a *cacheAttention) attend(worker, i, head int) {
	rest := a.work[worker*a.scratchSize():][:a.scratchSize()]
	q, x, part, total, scores := rest[:a.d], rest[a.d:2*a.d], rest[2*a.d:3*a.d], rest[3*a.d:4*a.d], rest[4*a.d:]
	clear(total)
	sequence, position, ok := a.row(i)
	if !ok {
		a.o.store(total, (i*a.heads+head)*a.d)
		return
	}
	a.q.load(q, (i*a.heads+head)*a.d)
	kernel.Scale(q, q, a.scale)
	from := 0
	if a.window > 0 {
		from = max(0, position-a.window+1)
	}
	group := head * a.kv / a.heads
	top, sum := float32(math.Inf(-1)), float64(0)
	for from <= position {
		end := min(position+1, (from/op.CacheChunk+1)*op.CacheChunk)
		s := scores[:end-from]
		for j := range s {
			a.keys.load(x, a.at(sequence, from+j, group))
			s[j] = float32(kernel.Dot(q, x))
		}
		high := max(kernel.Max(s), -math.MaxFloat32)
		more := kernel.ExpSum(s, s, high)
		clear(part)
		for j, w := range s {
			a.values.load(x, a.at(sequence, from+j, group))
			kernel.AddScaled(part, x, w)
		}
		now := max(top, high)
		old, new := float32(math.Exp(float64(top-now))), float32(math.Exp(float64(high-now)))
		kernel.Scale(total, total, old)
		kernel.AddScaled(total, part, new)
		sum = sum*float64(old) + more*float64(new)
		top, from = now, end
	}
	kernel.Scale(total, total, float32(1/sum))
	a.o.store(total, (i*a.heads+head)*a.d)
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
		quant.DecodeRow(n.of, dst, n.raw[at:at+len(dst)], quant.RowScale(n.raw, n.n, at/len(dst)))
	}
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
