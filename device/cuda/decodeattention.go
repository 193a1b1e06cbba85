package cuda

import (
	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

func init() {
	register(op.CachedAttention, cachedAttention)
	register(op.AttendCache, attendCache)
}

// cacheTypes numbers the types of a cache as kernels/decodeCache.cu does.
var cacheTypes = map[dtype.Type]int64{dtype.F32: 0, dtype.BF16: 1, dtype.F16: 2, quant.RowI8: 3, quant.RowF8: 4, quant.RowI4: 5}

// cached is attention over a cache, with its sizes and operands by name.
type cached struct {
	op.Attr
	element                       dtype.Type // of q
	keys, values                  op.Type
	rows, d                       int64
	page, streams, table, count   int64
	q, k, v, cacheK, cacheV, o    arg
	positions, sequences, pagesAt arg
	own                           *attendTuning // see Device.plainly
}

// cachedCall reads a call whose q is operand 0 and whose caches are operands from first on,
// before positions, sequences and pages; its outputs end with o.
func cachedCall(c op.Call, first int) cached {
	cache, table := c.In[first].Shape, c.In[first+4].Shape
	return cached{Attr: c.Attr, element: c.In[0].DType, keys: c.In[first], values: c.In[first+1], rows: c.In[0].Shape[1], d: cache[3],
		page: cache[2], streams: table[0], table: table[1], count: cache[0],
		q: buffer(0), k: buffer(1), v: buffer(2), cacheK: buffer(first), cacheV: buffer(first + 1), o: buffer(len(c.In) + len(c.Out) - 1),
		positions: buffer(first + 2), sequences: buffer(first + 3), pagesAt: buffer(first + 4)}
}

// args lists the parameters of cache.h.
func (c cached) args() []arg {
	return []arg{c.positions, c.sequences, c.pagesAt, i64(c.rows), i64(c.Heads), i64(c.KVHeads), i64(c.page), i64(c.streams), i64(c.table), i64(c.count), i64(c.Window), f32(c.Scale)}
}

func cachedAttention(d *Device, call op.Call) (p program, err error) {
	c := cachedCall(call, 3)
	if err := c.store(d, &p); err != nil {
		return p, err
	}
	err = c.attend(d, &p)
	return p, err
}

func attendCache(d *Device, call op.Call) (p program, err error) {
	err = cachedCall(call, 1).attend(d, &p)
	return p, err
}

// addEarly appends a launch of a kernel that waits for the one before it by itself.
func (p *program) addEarly(k *kernelLaunch, err error) error {
	if err == nil {
		k.early = true
		p.actions = append(p.actions, k)
	}
	return err
}

// store appends the kernel that puts keys and values of the rows into the cache.
func (c cached) store(d *Device, p *program) error {
	return p.addEarly(d.grid(unitFor("decodeCache", c.element), "storeCache", [3]int64{c.rows, c.KVHeads, 2}, [3]int64{32, 1, 1}, 0,
		append([]arg{c.k, c.v, c.cacheK, c.cacheV, i64(cacheTypes[c.keys.DType]), i64(cacheTypes[c.values.DType]), i64(c.d), i64(c.keys.Shape.Elements())}, c.args()...)...))
}

// coded says whether keys and values both are stored in 8 or 4 bits, which kernels on tensor cores read
// for heads of two sizes.
func (c cached) coded() bool {
	return c.keys.DType.ByRows() && c.values.DType.ByRows() && (c.d == 64 || c.d == 128)
}

// onTensorCores says whether tensor cores compute the call: on 16-bit elements as the queries have, or on codes.
func (c cached) onTensorCores() bool {
	plain := c.keys.DType == c.element && c.values.DType == c.element && c.d%32 == 0 && c.d <= 128
	return c.element != dtype.F32 && (plain || c.coded()) && c.Scale > 0 && c.keys.Shape.Rows() < 1<<31
}

// attend appends attention over the cache: on tensor cores by one kernel for a row of each sequence and
// another for many rows.
func (c cached) attend(d *Device, p *program) error {
	c.own = d.plainly.attend
	group := c.Heads / c.KVHeads
	switch fits := c.onTensorCores(); {
	case fits && c.Exact && maxDecodeRows*c.KVHeads*ceilDiv(group, attendHeads) <= 1<<14:
		return c.byRows(d, p)
	case fits && !c.Exact && c.rows <= min(c.streams, maxDecodeRows) && c.rows*c.KVHeads*ceilDiv(group, attendHeads) <= 1<<14:
		return c.decode(d, p, true)
	case fits && !c.Exact && group <= prefillRows:
		return c.prefill(d, p)
	}
	if c.d > 1024 {
		return unsupported("heads of more than 1024 elements are not handled")
	}
	return p.addEarly(d.grid(unitFor("decodeCache", c.element), "attendPlain", [3]int64{c.rows, c.Heads, 1}, [3]int64{128, 1, 1}, 4*c.d,
		append([]arg{c.q, c.cacheK, c.cacheV, c.o, i64(cacheTypes[c.keys.DType]), i64(cacheTypes[c.values.DType]), i64(c.d), i64(c.keys.Shape.Elements())}, c.args()...)...))
}

const (
	maxDecodeRows = 256 // MAX_ROWS of decodeAttention.cu
	prefillRows   = 128 // QUERIES of it
	prefillWarps  = 4   // its WARPS
	attendSteps   = 4   // its TEAM
	attendStep    = 32  // its STEP
	attendHeads   = 8   // its HEADS_AT_ONCE
)

// parts is into how many parts what a row sees is cut, so that few rows occupy all
// multiprocessors: as many as there are blocks for. Where rows must have the same bits whatever is
// computed with them it follows from what the cache was made for, and long sequences have several for rows that are alone;
// otherwise from the rows of the step.
func (c cached) parts(d *Device) int64 {
	rows, least := min(c.rows, c.streams), int64(1)
	if c.Exact {
		const long, most = 2048, 16 // positions of a part, parts
		rows, least = c.streams, max(1, min(most, c.table*c.page/long))
	}
	return max(least, c.blocks(d)*int64(d.gpu.multiprocessors)/(rows*c.KVHeads*ceilDiv(c.Heads/c.KVHeads, attendHeads)))
}

// byRows appends attention of all rows, some of them at a time: exact ones have one kernel, however
// many there are.
func (c cached) byRows(d *Device, p *program) error {
	all := c
	for from := int64(0); from < all.rows; from += maxDecodeRows {
		c.rows = min(maxDecodeRows, all.rows-from)
		bytes := c.element.Bytes(from * c.Heads * c.d)
		c.q, c.o, c.positions, c.sequences = behind(all.q, bytes), behind(all.o, bytes), behind(all.positions, 4*from), behind(all.sequences, 4*from)
		if err := c.decode(d, p, all.rows <= maxDecodeRows); err != nil {
			return err
		}
	}
	return nil
}

// unit of decodeAttention.cu.
func (c cached) unit() unit {
	how := c.tuned()
	u := unit{file: "decodeAttention", element: c.element, head: c.d, tiles: how.tiles, stages: how.stages, blocks: how.blocks}
	if how.team != attendSteps {
		u.team = how.team
	}
	if c.coded() {
		u.scales = how.scales
		u.key, u.value = cacheTypes[c.keys.DType], cacheTypes[c.values.DType]
	}
	return u
}

// tile is the bytes of rows of a head in shared memory, padded or not.
func (c cached) tile(rows int64, padded bool) int64 {
	if !padded {
		return c.element.Bytes(rows * c.d)
	}
	return c.element.Bytes(rows * (c.d + elementsPerLoad(c.element)))
}

// decode appends attention of few rows; alone says that they are all rows of the call.
func (c cached) decode(d *Device, p *program, alone bool) error {
	if c.tuned().split >= 0 {
		return c.cluster(d, p, alone)
	}
	most := c.parts(d) + 1
	items := c.rows * c.KVHeads * ceilDiv(c.Heads/c.KVHeads, attendHeads)
	sums := aligned(4 * c.d * c.rows * c.Heads * most)
	p.workspace = max(p.workspace, sums+aligned(8*c.rows*c.Heads*most))
	blocks := min(items*most, c.blocks(d)*int64(d.gpu.multiprocessors))
	return p.addEarly(d.grid(c.unit(), "attend", [3]int64{blocks, 1, 1}, [3]int64{32 * c.tuned().team, 1, 1}, c.shared(),
		append([]arg{c.q, c.cacheK, c.cacheV, c.o, scratchAt(0), scratchAt(sums), i64(c.parts(d)), i64(c.tuned().grain), i64(most), ofQueue(), flag(alone), i64(c.keys.Shape.Elements())}, c.args()...)...))
}

// cluster appends attention of few rows, the parts of each by a cluster.
func (c cached) cluster(d *Device, p *program, alone bool) error {
	how, group := c.tuned(), c.Heads/c.KVHeads
	k, err := d.grid(c.unit(), "attendCluster", [3]int64{1 << how.split, c.KVHeads, c.rows * ceilDiv(group, attendHeads)}, [3]int64{32 * how.team, 1, 1}, c.shared(),
		append([]arg{c.q, c.cacheK, c.cacheV, c.o, flag(alone), i64(how.split), i64(group), i64(c.keys.Shape.Elements())}, c.args()...)...)
	if err != nil {
		return err
	}
	if k.cluster = 1 << how.split; how.split > 3 {
		if err := d.within(func() error { return d.lib.CUDA.AllowClusters(k.function.handle) }); err != nil {
			return err
		}
	}
	return p.addEarly(k, nil)
}

// rowBytes is what the codes of a row of the cache take.
func (c cached) rowBytes() (keys, values int64) {
	return quant.RowCodeBytes(c.keys.DType, c.d), quant.RowCodeBytes(c.values.DType, c.d)
}

// rowScaleBytes is what the scales of a row of the cache take.
func rowScaleBytes(t dtype.Type, d int64) int64 {
	if t == quant.RowI4 {
		return d / 16 // an f16 for every 32 numbers
	}
	return 4
}

// shared is the memory of a block of attend: tiles of keys and values of its warps, queries, and results.
func (c cached) shared() int64 {
	how, group := c.tuned(), min(attendHeads, c.Heads/c.KVHeads)
	results, queries := 4*group*c.d, min(group, attendHeads-1)+1
	if how.split < 0 {
		results *= how.team
	}
	if !c.coded() {
		return c.tile(how.team*how.tiles*how.stages*2*attendStep+queries, c.d%64 != 0) + results
	}
	keys, values := c.rowBytes()
	if how.scales {
		keys += rowScaleBytes(c.keys.DType, c.d) + rowScaleBytes(c.values.DType, c.d)
	}
	return how.team*how.tiles*how.stages*attendStep*(keys+values) + 2*queries*(c.d+8) + results
}

// attendTuning is how a kind of attend works: tiles of positions that a warp takes at once, how often so many are fetched ahead, blocks of a
// multiprocessor, and what parts of a row are multiples of.
type attendTuning struct {
	tiles, stages, blocks, grain int64
	team                         int64 // warps
	split                        int64 // a row is a cluster of 1 << split blocks; -1: blocks take parts of rows in turn
	scales                       bool  // scales are fetched with codes
}

var (
	plainTuning = attendTuning{1, 1, 2, 128, attendSteps, -1, false}
	codedTuning = attendTuning{1, 2, 2, 128, attendSteps, -1, false}
	// longTuning is for long sequences in 4 bits, where a tile is little to fetch for what its weights cost.
	longTuning = attendTuning{2, 1, 2, 256, attendSteps, -1, false}
)

func (c cached) tuned() attendTuning {
	const long = 4096 // positions
	switch {
	case c.own != nil:
		return *c.own
	case !c.coded():
		return plainTuning
	case (c.keys.DType == quant.RowI4 || c.values.DType == quant.RowI4) && c.table*c.page > long:
		return longTuning
	}
	return codedTuning
}

// blocks are how many of attend are resident on a multiprocessor.
func (c cached) blocks(d *Device) int64 {
	const reserved, own = 1 << 10, 3584 // for each block, next to what it may have; what it declares itself, at most
	return max(1, min(c.tuned().blocks, (int64(d.gpu.shared)+reserved)/(c.shared()+own+reserved)))
}

func (c cached) prefill(d *Device, p *program) error {
	tokens := prefillRows / (c.Heads / c.KVHeads)
	shared := c.tile(prefillRows+4*64, true)
	if c.coded() {
		keys, values := c.rowBytes()
		shared = c.tile(prefillRows+2*64, true) + 64*(keys+values)
	}
	return p.addEarly(d.grid(c.unit(), "prefill", [3]int64{ceilDiv(c.rows, tokens), c.KVHeads, 1}, [3]int64{32 * prefillWarps, 1, 1}, shared,
		append([]arg{c.q, c.cacheK, c.cacheV, c.o, i64(c.keys.Shape.Elements())}, c.args()...)...))
}
