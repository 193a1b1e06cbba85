package cuda

import (
	"spillway/device/cuda/driver"
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
	switch fits := c.onTensorCores(); {
	case fits && c.Exact && maxDecodeRows*c.lines() <= 1<<14:
		return c.byRows(d, p)
	case fits && c.few():
		return c.decode(d, p, true)
	case fits && !c.Exact && c.Heads/c.KVHeads <= prefillRows:
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
	attendWarps   = 4   // its TEAM, where nothing else is asked for
	attendStep    = 32  // its STEP
	attendHeads   = 8   // its HEADS_AT_ONCE
)

// few says whether rows are of a step that adds some to each sequence, and need not have the same bits in another step.
func (c cached) few() bool {
	return !c.Exact && c.rows <= min(c.streams, maxDecodeRows) && c.items() <= 1<<14
}

// lines are heads of the keys of a row, each with so many of the heads that share it as are computed at once. items are those of all rows.
func (c cached) lines() int64 { return c.KVHeads * ceilDiv(c.Heads/c.KVHeads, attendHeads) }
func (c cached) items() int64 { return c.rows * c.lines() }

// parts is into how many parts what a row sees is cut, so that few rows occupy all
// multiprocessors: as many as there are blocks for. Where rows must have the same bits whatever is
// computed with them it follows from what the cache was made for, and long sequences have several for rows that are alone;
// otherwise from the rows of the step.
func (c cached) parts(d *Device, how attendForm) int64 {
	rows, least := min(c.rows, c.streams), int64(1)
	if c.Exact {
		const long, most = 2048, 16 // positions of a part, parts
		rows, least = c.streams, max(1, min(most, c.table*c.page/long))
	}
	return max(least, c.blocks(d, how)*int64(d.gpu.multiprocessors)/(rows*c.lines()))
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
func (c cached) unit(how attendForm) unit {
	u := unit{file: "decodeAttention", element: c.element, head: c.d, tiles: how.tiles, stages: how.stages, blocks: how.blocks, cluster: how.cluster}
	if how.team != attendWarps {
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
	how := c.form(d)
	if how.cluster > 0 {
		k, err := c.clusters(d, how)
		if err != nil || how.cluster == 1 || d.plainly.attend != nil || d.clustersAtOnce(k) >= c.items() {
			return p.addEarly(k, err)
		}
		how = c.turns()
	}
	most, sms := c.parts(d, how)+1, int64(d.gpu.multiprocessors)
	sums := aligned(4 * c.d * c.rows * c.Heads * most)
	p.workspace = max(p.workspace, sums+aligned(8*c.rows*c.Heads*most))
	return p.addEarly(d.grid(c.unit(how), "attend", [3]int64{min(c.items()*most, c.blocks(d, how)*sms), 1, 1}, [3]int64{32 * how.team, 1, 1}, c.shared(how),
		append([]arg{c.q, c.cacheK, c.cacheV, c.o, scratchAt(0), scratchAt(sums), i64(c.parts(d, how)), i64(how.grain()), i64(most), ofQueue(), flag(alone), i64(c.keys.Shape.Elements())}, c.args()...)...))
}

// clusters launches attention of few rows, a cluster or one block for each item.
func (c cached) clusters(d *Device, how attendForm) (*kernelLaunch, error) {
	k, err := d.grid(c.unit(how), "attendCluster", [3]int64{how.cluster, c.KVHeads, c.items() / c.KVHeads}, [3]int64{32 * how.team, 1, 1}, c.shared(how),
		append([]arg{c.q, c.cacheK, c.cacheV, c.o, i64(c.Heads / c.KVHeads), i64(c.keys.Shape.Elements())}, c.args()...)...)
	if err == nil {
		k.cluster = uint32(how.cluster)
	}
	return k, err
}

// clustersAtOnce is how many clusters of a launch the GPU has room for at once: blocks of one are on neighbouring multiprocessors, of which some parts of the
// GPU have fewer than others. A driver that does not answer is one without room.
func (d *Device) clustersAtOnce(k *kernelLaunch) (n int64) {
	_ = d.within(func() error {
		found, err := d.lib.CUDA.Clusters(&driver.Launch{Function: k.function.handle, Grid: k.grid, Block: k.block, Shared: k.shared, Cluster: k.cluster})
		if err == nil {
			n = int64(found)
		}
		return err
	})
	return n
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

// shared is the memory of a block of attend: tiles of keys and values of its warps, queries, and results, those of warps of a cluster where their tiles were.
func (c cached) shared(how attendForm) int64 {
	group := min(attendHeads, c.Heads/c.KVHeads)
	results, queries := 4*group*c.d, min(group, attendHeads-1)+1
	if how.cluster == 0 {
		results *= how.team
	}
	tiles := how.team * how.tiles * how.stages * attendStep
	if !c.coded() {
		return c.tile(2*tiles+queries, c.d%64 != 0) + results
	}
	keys, values := c.rowBytes()
	if how.scales {
		keys += rowScaleBytes(c.keys.DType, c.d) + rowScaleBytes(c.values.DType, c.d)
	}
	return tiles*(keys+values) + 2*queries*(c.d+8) + results
}

// attendForm is how attend works.
type attendForm struct {
	cluster       int64 // blocks of a cluster that has an item, 1 for a block alone; 0: blocks take parts of items in turn
	team          int64 // warps of a block
	tiles, stages int64 // tiles of positions that a warp takes at once, and how often so many are fetched ahead
	blocks        int64 // of a multiprocessor, at most
	scales        bool  // of a coded cache are fetched as codes are
}

// grain is what parts of a row are multiples of.
func (f attendForm) grain() int64 { return attendWarps * attendStep * f.tiles }

// attendForms are those for a kind of cache: blocks that take parts in turn, clusters of eight blocks of four warps and of eight, and a block of eight warps.
type attendForms struct{ turns, small, large, alone attendForm }

var (
	plainForms = attendForms{attendForm{0, 4, 1, 1, 2, false}, attendForm{8, 4, 1, 1, 2, false}, attendForm{8, 8, 1, 1, 1, false}, attendForm{1, 8, 1, 1, 1, false}}
	codedForms = attendForms{attendForm{0, 4, 1, 2, 2, false}, attendForm{8, 4, 1, 2, 2, true}, attendForm{8, 8, 1, 2, 1, true}, attendForm{1, 8, 2, 1, 1, true}}
	// longTurns is for long sequences in 4 bits, where a tile is little to fetch for what its weights cost.
	longTurns = attendForm{0, 4, 2, 1, 2, false}
	// fetchedTurns is for those in 8 bits.
	fetchedTurns = attendForm{0, 4, 1, 2, 2, true}
)

func (c cached) forms() attendForms {
	if c.coded() {
		return codedForms
	}
	return plainForms
}

const (
	longCodes            = 4096       // positions beyond which 4 bits are in turns in their own way
	short, medium        = 2048, 8192 // positions that clusters of small blocks and of large ones are for, at most
	fewAlone, mostAlone  = 128, 512   // items that a block each is for
	fetchedI8, fetchedF8 = 8, 32      // items of more positions whose scales are fetched, at most
)

// turns is blocks that take parts in turn: the form of rows that are exact, whose partition and bits it fixes, and of all that have no better one.
func (c cached) turns() attendForm {
	if c.coded() && c.has(quant.RowI4) && c.table*c.page > longCodes {
		return longTurns
	}
	return c.forms().turns
}

// has says whether keys or values are of a type.
func (c cached) has(t dtype.Type) bool { return c.keys.DType == t || c.values.DType == t }

// form is how few rows are computed. µs of a call behind the kernel that stores a position, and of a step of 32 layers, in turns and then so, where a row has
// 8 items: heads of the keys, of 128 numbers; H200, BenchmarkAttendForms:
//
//	                        bf16         int8         fp8          int4
//	a cluster of 8 blocks of 4 warps, up to 2,048 positions
//	  1 row of 1,024        7.7   7.1    8.2   7.7    8.5   8.2    9.2   8.7
//	  step of it            4041  3820   4129  3908   4156  3916   4129  3918
//	a cluster of 8 blocks of 8 warps, up to 8,192
//	  1 row of 4,096        11.4  9.8    10.4  8.5    10.7  9.6    10.3  10.0
//	a block of 8 warps alone
//	  16 rows of 1,024      23.0  20.1   16.9  14.8   18.4  15.9   16.4  14.6
//	  16 rows of 32,768     490   471    265   264    296   262    222   256   (4 bits: in turns)
//	in turns, scales of 8 bits fetched as codes are
//	  1 row of 32,768                    26.4  25.8   28.3  26.1
//	  4 rows of 32,768                   73.5  85.9   82.2  78.6               (int8: one row alone)
//
// Steps are replayed with the launches they began with, so it is the room that a cache has for a sequence, or the window, that decides, and not how long the
// sequence is. Clusters for many positions are good for few too; but steps of 32,768 take 2 to 7% longer in them than in turns, while steps of 1,024 take 5%
// less, so that a session with room for 32,768 does without that while its texts are short.
//
// All clusters must be resident at once, as the driver answers: on an H200 15 of large blocks and, of small ones, between 16 and 45, by what the kernel of a cache takes. Else, and on other GPUs, rows are computed
// in turns. Blocks alone work in waves, one on a multiprocessor; the last wave must not leave many idle, which is reckoned and measured for 16 rows alone.
func (c cached) form(d *Device) attendForm {
	forms, turns := c.forms(), c.turns()
	switch {
	case c.Exact:
		return turns
	case d.plainly.attend != nil:
		return *d.plainly.attend
	case d.gpu.major != 9:
		return turns
	}
	seen, items, sms := c.table*c.page, c.items(), int64(d.gpu.multiprocessors)
	if c.Window > 0 {
		seen = min(seen, c.Window)
	}
	lastWave := (items-1)%sms + 1
	fits := func(f attendForm) bool { return items*f.cluster <= c.room(d, f)*sms } // beyond that the driver need not be asked
	switch {
	case items >= fewAlone && items <= mostAlone && 4*lastWave >= 3*sms && turns != longTurns && c.room(d, forms.alone) > 0:
		return forms.alone
	case seen <= short && fits(forms.small):
		return forms.small
	case seen <= medium && fits(forms.large):
		return forms.large
	case seen > medium && c.coded() && !c.has(quant.RowI4) && (items <= fetchedI8 || items <= fetchedF8 && !c.has(quant.RowI8)):
		return fetchedTurns
	}
	return turns
}

// room is how many blocks of attend a multiprocessor has memory for, blocks how many of them are meant to be there.
func (c cached) room(d *Device, how attendForm) int64 {
	const reserved, own = 1 << 10, 3584 // for each block, next to what it may have; what it declares itself, at most
	return (int64(d.gpu.shared) + reserved) / (c.shared(how) + own + reserved)
}
func (c cached) blocks(d *Device, how attendForm) int64 {
	return max(1, min(how.blocks, c.room(d, how)))
}

func (c cached) prefill(d *Device, p *program) error {
	tokens := prefillRows / (c.Heads / c.KVHeads)
	shared := c.tile(prefillRows+4*64, true)
	if c.coded() {
		keys, values := c.rowBytes()
		shared = c.tile(prefillRows+2*64, true) + 64*(keys+values)
	}
	return p.addEarly(d.grid(c.unit(c.turns()), "prefill", [3]int64{ceilDiv(c.rows, tokens), c.KVHeads, 1}, [3]int64{32 * prefillWarps, 1, 1}, shared,
		append([]arg{c.q, c.cacheK, c.cacheV, c.o, i64(c.keys.Shape.Elements())}, c.args()...)...))
}
