package cuda

import (
	"cmp"
	"slices"

	"spillway/dtype"
	"spillway/op"
)

func init() {
	register(op.NormHeads, normHeads)
	register(op.NormGated, normGated)
}

// FusesOps implements device.OpFuser.
func (d *Device) FusesOps() bool { return true }

// ownRows is how many rows these kernels take at once. Beyond fewestRows others are faster (manyrows.go, or cuBLASLt), so that they are for exact rows
// on GPUs that have no others.
const ownRows, fewestRows = 16, 8

// fewRows is a product of few rows by decode.cu, with what decides its launch.
type fewRows struct {
	rows, k int64
	tiles   int64 // of 16 rows of weights
	bulk    bool  // by the copy engine
	ring    bool  // x goes through the rings that weights go through
	two     bool  // more than eight rows
	stages  int64 // of the ring of a block
	blocks  int64 // of a multiprocessor
}

// Sizes of decode.cu.
const (
	decodeWarps = 8                            // WARPS
	decodeSpan  = 64                           // SPAN
	decodePiece = 2 * decodeWarps * decodeSpan // PIECE_PITCH
	bulkThreads = (decodeWarps + 4 + 2) * 32   // BULK_THREADS
	laneStages  = 4                            // STAGES
)

// shared is the memory of a block: the ring, the sums of the warps twice, and x unless that is
// in the ring.
func (f fewRows) shared() int64 {
	eights := ceilDiv(f.rows, 8)
	bytes := 2 * decodeWarps * 16 * 8 * 4 * eights
	switch {
	case f.bulk:
		bytes += f.stages * 16 * decodePiece
	case f.ring:
		bytes += decodeWarps * laneStages * (4 + 2*eights) * 512
	default:
		bytes += decodeWarps * laneStages * 4 * 512
	}
	if !f.ring {
		bytes += 2 * f.rows * (ceilDiv(f.k, decodeSpan)*decodeSpan + 16)
	}
	return bytes
}

// staged gives a block of the copy engine as many stages as fit, with two blocks on a
// multiprocessor where that leaves enough of them.
func (f fewRows) staged(shared int64) fewRows {
	const reserved = 1 << 10 // for each block, next to what it may have
	const own = 512          // what it declares itself, at most
	most := int64(2)
	if f.two {
		most = 1
	}
	for f.blocks = most; f.blocks > 0; f.blocks-- {
		for f.stages = bulkStages; f.stages > 2; f.stages-- {
			if f.blocks*(f.shared()+own+reserved) <= shared+reserved && (f.stages >= minStages || f.blocks == 1) {
				return f
			}
		}
	}
	return f
}

// bulkStages is the most stages that pay, of the 8 that are possible; minStages the fewest
// for two blocks.
const bulkStages, minStages = 5, 4

// newFewRows plans a product; ok is false where there is no kernel for it, or a faster one unless rows
// are to be exact. Rows that are normalized stay in shared memory.
func (d *Device) newFewRows(t dtype.Type, rows, k, tiles int64, normed, exact bool) (f fewRows, ok bool) {
	f = fewRows{rows: rows, k: k, tiles: tiles, two: rows > fewestRows, bulk: d.gpu.major >= 9 && k%decodeSpan == 0 && !d.plainly.copies}
	if t != dtype.BF16 && t != dtype.F16 || rows < 1 || rows > ownRows || f.two && !exact || k%8 != 0 || k < 8 || tiles < 1 {
		return f, false
	}
	room := int64(d.gpu.shared)
	if f.bulk {
		if f = f.staged(room); f.blocks > 0 && (f.blocks == 1 || !f.two) {
			return f, true
		}
		f.bulk = false
	}
	f.blocks, f.stages = 2, 0
	if f.two {
		f.blocks, f.ring = 1, true
		return f, !normed && f.shared() <= room
	}
	f.ring = !normed && f.shared() > room/2
	return f, f.shared() <= room
}

// grid is how many blocks there are.
func (f fewRows) grid(d *Device) int64 { return min(f.tiles, f.blocks*int64(d.gpu.multiprocessors)) }

// launch prepares a kernel of decode.cu.
func (f fewRows) launch(d *Device, t dtype.Type, name string, args ...arg) (program, error) {
	if f.ring {
		name += "Ring"
	}
	threads := int64(decodeWarps * 32)
	if f.bulk {
		name, threads = name+"Bulk", bulkThreads
	}
	if f.two {
		name += "Two"
	}
	k, err := d.grid(unitFor("decode", t), name, [3]int64{f.grid(d), 1, 1}, [3]int64{threads, 1, 1}, f.shared(), append(args, i64(f.stages))...)
	if err != nil {
		return program{}, err
	}
	k.early = true
	return program{actions: []action{k}}, nil
}

// matMulRows is a matmul of few rows with the transpose of a matrix; ok is false where
// cuBLASLt computes it.
func (d *Device) matMulRows(c op.Call) (p program, ok bool, err error) {
	m, n, k := c.MatMulDims()
	t := c.In[0].DType
	if !c.Attr.Constant && !c.Attr.Exact || c.Attr.TransA || !c.Attr.TransB || c.Attr.Accumulate || c.In[1].DType != t || c.Out[0].DType != t || c.Attr.Bias && c.In[2].DType != t {
		return p, false, nil
	}
	bias, plus := arg{}, arg{}
	if c.Attr.Bias {
		bias = buffer(2)
	}
	if c.Attr.Plus {
		plus = buffer(2)
	}
	if d.byTiles(c.Attr.Exact, t, m, n, k) {
		x := matmulTiles{m: m, n: n, k: k, x: buffer(0), w: buffer(1), bias: bias, plus: plus, y: buffer(len(c.In)), constant: c.Attr.Constant}
		step, err := x.launch(d, t)
		return program{actions: []action{step}}, true, err
	}
	return d.inGroups(c.Attr.Exact, m, func(from, rows int64) (program, bool, error) {
		f, fits := d.newFewRows(t, rows, k, ceilDiv(n, 16), false, c.Attr.Exact)
		if !fits {
			return p, false, nil
		}
		p, err := f.launch(d, t, "matmulRows", behind(buffer(0), t.Bytes(from*k)), buffer(1), bias, behind(plus, t.Bytes(from*n)), behind(buffer(len(c.In)), t.Bytes(from*n)), i64(rows), i64(n), i64(k), flag(c.Attr.Constant))
		return p, true, err
	})
}

// behind is a parameter so many bytes behind another; none stays none.
func behind(a arg, bytes int64) arg {
	if a != (arg{}) {
		a.bits += uint64(bytes)
	}
	return a
}

// inGroups puts together what launches rows from a row on: all at once, or where a row is to have the same bits
// whatever rows are computed with it as many at a time as there are kernels for.
func (d *Device) inGroups(exact bool, rows int64, launch func(from, rows int64) (program, bool, error)) (p program, ok bool, err error) {
	for from := int64(0); from < rows; {
		n := rows - from
		if exact {
			n = min(n, ownRows)
		}
		part, fits, err := launch(from, n)
		for exact && !fits && err == nil && n > 1 {
			n = max(1, min(n/2, fewestRows))
			part, fits, err = launch(from, n)
		}
		if err != nil || !fits {
			return p, fits, err
		}
		p.actions = append(p.actions, part.actions...)
		from += n
	}
	return p, true, nil
}

func normGated(d *Device, c op.Call) (p program, err error) {
	if c.In[2].DType.Block() && !c.Attr.Exact {
		return packedGated(d, c)
	}
	t, rows, k, n := c.In[0].DType, c.In[0].Shape.Rows(), c.In[0].Shape.Last(), c.In[2].Shape[0]
	none := unsupported("norm_gated is for rows of 16-bit elements, with widths that its kernels have")
	if err := same(c.In[0], c.In[1], c.In[2]); err != nil || c.In[1].Shape[0] != k || c.Attr.Func > op.SiLU {
		return p, none
	}
	if d.byTiles(c.Attr.Exact, t, rows, 2*n, k) && n%elementsPerLoad(t) == 0 {
		return d.jointGated(c, rows, n, k)
	}
	p, fits, err := d.inGroups(c.Attr.Exact, rows, func(from, rows int64) (program, bool, error) {
		f, fits := d.newFewRows(t, rows, k, ceilDiv(n, 8), true, c.Attr.Exact)
		if !fits {
			return p, false, nil
		}
		p, err := f.launch(d, t, "normGated", behind(buffer(0), t.Bytes(from*k)), buffer(1), buffer(2), buffer(3), behind(buffer(4), t.Bytes(from*n)), i64(rows), i64(n), i64(k), i64(int64(c.Attr.Func)), f32(c.Attr.Eps))
		return p, true, err
	})
	switch {
	case fits || err != nil:
		return p, err
	case jointRows(c, rows, k) && n%elementsPerLoad(t) == 0:
		return d.jointGated(c, rows, n, k)
	}
	return p, none
}

// normedHeads is what kernels of NormHeads read of a call.
type normedHeads struct {
	size, half int64 // of a head, and of the angles that it is rotated by
	scale      float64
	bias       [3]arg // of q, k and v; 0 where there is none
	places     []arg  // sizes, and those of the cache that keys and values go to
	fits       bool   // heads and biases are such as kernels take
}

func newNormedHeads(c op.Call) normedHeads {
	cache, table := c.In[6].Shape, c.In[10].Shape
	h := normedHeads{size: cache[3], half: c.In[5].Shape[0], scale: cmp.Or(c.Attr.Scale, 1)}
	h.fits = h.size%16 == 0 && h.half%8 == 0 && (!c.Attr.Bias || same(append(c.In[11:14:14], c.In[0])...) == nil)
	if c.Attr.Bias {
		h.bias = [3]arg{buffer(11), buffer(12), buffer(13)}
	}
	h.places = []arg{i64(c.Attr.Heads), i64(c.Attr.KVHeads), i64(h.size), i64(h.half), f32(h.scale), i64(cache[2]), i64(table[0]), i64(table[1]), i64(cache[0])}
	return h
}

func normHeads(d *Device, c op.Call) (p program, err error) {
	if c.In[2].DType.Block() && !c.Attr.Exact {
		return packedHeads(d, c)
	}
	t, rows, k, h := c.In[0].DType, c.In[0].Shape.Rows(), c.In[0].Shape.Last(), newNormedHeads(c)
	tiles := (c.Attr.Heads + 2*c.Attr.KVHeads) * (h.size / 16)
	none := unsupported("norm_heads is for rows of 16-bit elements, and heads of a multiple of 16")
	if err := same(c.In[0], c.In[1], c.In[2], c.In[3], c.In[4]); err != nil || c.In[1].Shape[0] != k || !h.fits {
		return p, none
	}
	if d.byTiles(c.Attr.Exact, t, rows, tiles*16, k) {
		return d.jointHeads(c, rows, k, h.bias, h.scale)
	}
	held := newStaged(&p, c)
	made, fits, err := d.inGroups(c.Attr.Exact, rows, func(from, rows int64) (program, bool, error) {
		f, fits := d.newFewRows(t, rows, k, tiles, true, c.Attr.Exact)
		if !fits {
			return p, false, nil
		}
		keys, values := held.k, held.v
		if held.apart {
			keys, values = behind(held.k, t.Bytes(from*c.Attr.KVHeads*h.size)), behind(held.v, t.Bytes(from*c.Attr.KVHeads*h.size))
		}
		weights := []arg{buffer(2), buffer(3), buffer(4), h.bias[0], h.bias[1], h.bias[2], buffer(5), behind(buffer(8), 4*from), behind(buffer(9), 4*from), held.pages, keys, values,
			behind(buffer(len(c.In)+2), t.Bytes(from*c.Attr.Heads*h.size)), i64(rows), i64(k)}
		p, err := f.launch(d, t, "normHeads", slices.Concat([]arg{behind(buffer(0), t.Bytes(from*k)), buffer(1)}, weights, []arg{f32(c.Attr.Eps)}, h.places)...)
		return p, true, err
	})
	switch {
	case err != nil:
		return p, err
	case fits:
		p.actions = made.actions
		return p, held.finish(d, &p)
	case jointRows(c, rows, k) && t != dtype.F32:
		return d.jointHeads(c, rows, k, h.bias, h.scale)
	}
	return p, none
}
