package op

import (
	"fmt"
	"math"

	"spillway/dtype"
	"spillway/shape"
)

// CachedAttention is causal attention of rows that are tokens of several sequences, over the
// keys and values that a cache holds of each.
//
// It first stores k and v of every row at the row's position, rounded to the cache's types.
// Row i then sees the positions max(0, p-Window+1) to p of its sequence, p its own, as they
// are stored; a Window of 0 is none. The cache is cut into pages of a fixed number of
// positions. Position p of sequence s is in page pages[s, p/page mod P], at p mod page: with
// P pages for the longest sequence that is a table of all pages, with fewer a ring that
// holds the latest ones. Rows whose sequence is negative or not below S, or whose
// position is negative, are idle: they store nothing and give zeros.
//
//	operands  q [1 R H·D], k, v [1 R K·D], cache_k, cache_v [N K page D],
//	          positions, sequences [1 R] i32, pages [S P] i32
//	outputs   cache_k, cache_v in place, o [1 R H·D]
//
// A row's result depends on its own sequence alone, never on which rows are computed with
// it: positions are summed in chunks of CacheChunk, counted from position 0, and the chunks
// are combined in order. No two active rows have the same sequence and position.
//
// Attr.Document is the number of positions that sequences have when the call is
// forecast; 0 is all that the table has pages for.
const CachedAttention Kind = "cached_attention"

// CacheChunk is how many positions CachedAttention sums before it combines.
const CacheChunk = 512

func init() {
	Register(Op{Kind: CachedAttention, Takes: 8, Infer: inferCachedAttention, Cost: costCachedAttention, Reference: referenceCachedAttention,
		InPlace: func(Call) []int { return []int{3, 4} }, Cases: (*CaseList).cachedAttention})
}

func inferCachedAttention(a Attr, in []Type) ([]Type, error) {
	if err := check(float(in, 0, 1, 2), same(in, 1, 2), ids(in, 5, 6, 7)); err != nil {
		return nil, err
	}
	q, k, pages := in[0].Shape, in[1].Shape, in[7].Shape
	switch {
	case in[0].DType != in[1].DType:
		return nil, fmt.Errorf("q %v and k %v: element types differ; cast one of them", in[0], in[1])
	case len(q) != 3 || len(k) != 3 || q[0] != 1 || k[0] != 1 || q[1] != k[1]:
		return nil, fmt.Errorf("q %v and k %v, want [1 R H·D] and [1 R K·D]", in[0], in[1])
	case a.Heads < 1 || a.KVHeads < 1 || a.Heads%a.KVHeads != 0 || q[2]%a.Heads != 0 || k[2]%a.KVHeads != 0 || q[2]/a.Heads != k[2]/a.KVHeads:
		return nil, fmt.Errorf("q %v in %d heads and k %v in %d heads do not match", in[0], a.Heads, in[1], a.KVHeads)
	case a.Window < 0:
		return nil, fmt.Errorf("a window of %d positions", a.Window)
	case len(pages) != 2 || pages[0] < 1 || pages[1] < 1:
		return nil, fmt.Errorf("pages %v, want a table [S P] of at least one page", in[7])
	}
	for i, name := range []string{"positions", "sequences"} {
		if t := in[5+i]; !t.Shape.Equal(shape.Shape{1, q[1]}) {
			return nil, fmt.Errorf("%s %v do not fit %d rows", name, t, q[1])
		}
	}
	for i := 3; i <= 4; i++ {
		c := in[i].Shape
		if len(c) != 4 || c[0] < 1 || c[1] != a.KVHeads || c[2] < 1 || c[3] != k[2]/a.KVHeads || !c.Equal(in[3].Shape) {
			return nil, fmt.Errorf("cache %v, want [N %d page %d] of at least one page, keys and values alike", in[i], a.KVHeads, k[2]/a.KVHeads)
		}
		if !CacheType(in[i].DType) {
			return nil, fmt.Errorf("a cache in %v; want f32, bf16, f16, or 8 or 4 bits with scales in each row", in[i].DType)
		}
	}
	return []Type{in[3], in[4], in[0]}, nil
}

// ReadsCache says whether calls of a kind read a cache, so that what they cost depends on how
// many positions sequences have: Attr.Document.
func (k Kind) ReadsCache() bool { return k == CachedAttention || k == AttendCache }

// MixesRows says whether a kernel of a kind may give a row other bits when other rows are computed
// with it, so that Attr.Exact matters.
func (k Kind) MixesRows() bool {
	return k == MatMul || k == BatchMatMul || k == QuantizedMatmul || k == CachedAttention || k == AttendCache || k == NormHeads || k == NormGated
}

// CacheType says whether keys or values can be stored in a type: a plain one, or a block
// type whose blocks are rows. A row is one head of one position.
func CacheType(t dtype.Type) bool {
	return t == dtype.F32 || t == dtype.BF16 || t == dtype.F16 || t.ByRows()
}

// costCachedAttention counts rows as one for each sequence where there are no more rows than
// sequences, else as the latest positions of one sequence, whose keys are read once.
func costCachedAttention(c Call) Cost {
	rows, table, cache := c.In[0].Shape[1], c.In[7].Shape, c.In[3].Shape
	filled := table[1] * cache[2]
	if c.Attr.Document > 0 {
		filled = min(filled, c.Attr.Document)
	}
	window := filled
	if c.Attr.Window > 0 {
		window = min(filled, c.Attr.Window)
	}
	reads, pairs := rows*window, float64(rows*window)
	if rows > table[0] {
		reads = min(filled, window+rows-1)
		pairs = pairsOfRow(Attr{Causal: true, Window: window}, float64(min(rows, filled)), float64(filled))
	}
	heads := shape.Shape{cache[1], cache[3]} // of one position
	held := Type{c.In[3].DType, heads}.Bytes() + Type{c.In[4].DType, heads}.Bytes()
	bytes := (reads+rows)*held + 2*c.In[0].Bytes() + 2*c.In[1].Bytes() + c.In[5].Bytes() + c.In[6].Bytes()
	return Cost{Flops: 4 * pairs * float64(c.In[0].Shape[2]), Matrix: true, Bytes: bytes}
}

// cache is the operands of one call by name.
type cache struct {
	Call
	rows, heads, kv, d          int64
	positions, sequences, pages []int32
	streams, table              int64 // dimensions of the table of pages
	count, page                 int64 // pages of the cache, and positions of a page
	keys, values                Array
}

// at is where the numbers of a position of a sequence begin, for one key-value head.
func (c *cache) at(sequence, position, head int64) int64 {
	page := int64(c.pages[sequence*c.table+position/c.page%c.table])
	page = min(max(page, 0), c.count-1)
	return ((page*c.kv+head)*c.page + position%c.page) * c.d
}

// row is the sequence and position of a row; ok is false where it is idle.
func (c *cache) row(i int64) (sequence, position int64, ok bool) {
	sequence, position = int64(c.sequences[i]), int64(c.positions[i])
	return sequence, position, sequence >= 0 && sequence < c.streams && position >= 0
}

// newCache names the operands of a call, with keys and values as they are stored.
func newCache(call Call, in []Array, keys, values Array) *cache {
	kv := call.In[3].Shape
	return &cache{Call: call, rows: call.In[0].Shape[1], heads: call.Attr.Heads, kv: kv[1], d: kv[3], positions: in[5].I, sequences: in[6].I, pages: in[7].I,
		streams: call.In[7].Shape[0], table: call.In[7].Shape[1], count: kv[0], page: kv[2], keys: keys, values: values}
}

func referenceCachedAttention(call Call, in, out []Array, _ Args) {
	c := newCache(call, in, out[0], out[1])
	copy(out[0].F, in[3].F)
	copy(out[1].F, in[4].F)
	clear(out[2].F)
	for i := range c.rows {
		if sequence, position, ok := c.row(i); ok {
			for h := range c.kv {
				at, from := c.at(sequence, position, h), (i*c.kv+h)*c.d
				storeRounded(c.keys, at, in[1].F[from:from+c.d])
				storeRounded(c.values, at, in[2].F[from:from+c.d])
			}
		}
	}
	c.attendRows(in[0].F, out[2].F)
}

// attendRows adds what all rows see to o.
func (c *cache) attendRows(q, o []float64) {
	for i := range c.rows {
		if sequence, position, ok := c.row(i); ok {
			for h := range c.heads {
				at := (i*c.heads + h) * c.d
				c.attend(sequence, position, h, q[at:at+c.d], o[at:at+c.d])
			}
		}
	}
}

// storeRounded writes a row of numbers as the type of the array holds them.
func storeRounded(dst Array, at int64, row []float64) {
	a := NewArray(Type{dst.Type.DType, shape.Shape{1, int64(len(row))}})
	copy(a.F, row)
	a.Round()
	copy(dst.F[at:], a.F)
}

// attend adds what one head of a query sees to o.
func (c *cache) attend(sequence, position, head int64, q, o []float64) {
	first := int64(0)
	if c.Attr.Window > 0 {
		first = max(0, position-c.Attr.Window+1)
	}
	group := head * c.kv / c.heads
	scores := make([]float64, 0, position-first+1)
	for j := first; j <= position; j++ {
		at := c.at(sequence, j, group)
		scores = append(scores, c.Attr.Scale*dot(q, c.keys.F[at:at+c.d]))
	}
	lse := logSumExp(scores)
	for j, score := range scores {
		at := c.at(sequence, first+int64(j), group)
		axpy(math.Exp(score-lse), c.values.F[at:at+c.d], o)
	}
}
