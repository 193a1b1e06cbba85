package cuda

import (
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

// ownRows is up to how many rows these kernels are faster than cuBLASLt and kernels for one op
// each: a step of 8 rows of the Llama-3-8B shape takes 5.1 instead of 6.0 ms on an H200, one
// of 16 the same.
const ownRows = 8

// fewRows is a product of few rows by decode.cu, with what decides its launch.
type fewRows struct {
	rows, k int64
	tiles   int64 // of 16 rows of weights
	bulk    bool  // by the copy engine
	ring    bool  // x goes through the rings that weights go through
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
	bytes := int64(2 * decodeWarps * 16 * 8 * 4)
	switch {
	case f.bulk:
		bytes += f.stages * 16 * decodePiece
	case f.ring:
		bytes += decodeWarps * laneStages * (4 + 2) * 512
	default:
		bytes += decodeWarps * laneStages * 4 * 512
	}
	if !f.ring {
		bytes += 2 * f.rows * (ceilDiv(f.k, decodeSpan)*decodeSpan + 32)
	}
	return bytes
}

// staged gives a block of the copy engine as many stages as fit, with two blocks on a
// multiprocessor where that leaves enough of them.
func (f fewRows) staged(shared int64) fewRows {
	const reserved = 1 << 10 // for each block, next to what it may have
	const own = 512          // what it declares itself, at most
	for f.blocks = 2; f.blocks > 0; f.blocks-- {
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

// newFewRows plans a product; ok is false where there is no kernel for it. Rows that are
// normalized stay in shared memory.
func (d *Device) newFewRows(t dtype.Type, rows, k, tiles int64, normed bool) (f fewRows, ok bool) {
	f = fewRows{rows: rows, k: k, tiles: tiles, bulk: d.gpu.major >= 9 && k%decodeSpan == 0 && !d.plainly.copies}
	if t != dtype.BF16 && t != dtype.F16 || rows < 1 || rows > ownRows || k%8 != 0 || k < 8 || tiles < 1 {
		return f, false
	}
	room := int64(d.gpu.shared)
	if f.bulk {
		if f = f.staged(room); f.blocks > 0 {
			return f, true
		}
		f.bulk = false
	}
	f.blocks, f.stages = 2, 0
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
	f, fits := d.newFewRows(t, m, k, ceilDiv(n, 16), false)
	if !fits || c.Attr.Exact {
		many, fits := d.newManyRows(t, m, k, ceilDiv(n, 16), c.Attr.Exact)
		if !fits {
			return p, false, nil
		}
		err = many.launch(d, &p, "matmulTiles", buffer(0), buffer(1), bias, plus, buffer(len(c.In)), i64(m), i64(n), i64(k))
		if err == nil && !c.Attr.Constant {
			p.actions[0].(*kernelLaunch).early = false // it reads weights at once
		}
		return p, true, err
	}
	p, err = f.launch(d, t, "matmulRows", buffer(0), buffer(1), bias, plus, buffer(len(c.In)), i64(m), i64(n), i64(k), flag(c.Attr.Constant))
	return p, true, err
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
	if f, fits := d.newFewRows(t, rows, k, ceilDiv(n, 8), true); fits && !c.Attr.Exact {
		return f.launch(d, t, "normGated", buffer(0), buffer(1), buffer(2), buffer(3), buffer(4), i64(f.rows), i64(n), i64(k), i64(int64(c.Attr.Func)), f32(c.Attr.Eps))
	}
	f, fits := d.newManyRows(t, rows, k, ceilDiv(n, 8), c.Attr.Exact)
	if !fits {
		return p, none
	}
	x, _, err := f.norm(d, &p, c.Attr.Eps, arg{}, arg{}, 0, 1)
	if err != nil {
		return p, err
	}
	err = f.launch(d, &p, "gatedTiles", x, buffer(2), buffer(3), buffer(4), i64(rows), i64(n), i64(k), i64(int64(c.Attr.Func)))
	return p, err
}

func normHeads(d *Device, c op.Call) (p program, err error) {
	if c.In[2].DType.Block() && !c.Attr.Exact {
		return packedHeads(d, c)
	}
	t, rows, k, cache := c.In[0].DType, c.In[0].Shape.Rows(), c.In[0].Shape.Last(), c.In[6]
	size, half := cache.Shape[3], c.In[5].Shape[0]
	tiles := (c.Attr.Heads + 2*c.Attr.KVHeads) * (size / 16)
	none := unsupported("norm_heads is for rows of 16-bit elements, as the cache has them, and heads of a multiple of 16")
	if err := same(c.In[0], c.In[1], c.In[2], c.In[3], c.In[4], c.In[6], c.In[7]); err != nil || c.In[1].Shape[0] != k ||
		size%16 != 0 || half%8 != 0 || c.Attr.Bias && same(append(c.In[11:14:14], c.In[0])...) != nil {
		return p, none
	}
	out, scale, table := len(c.In), c.Attr.Scale, c.In[10].Shape
	if scale == 0 {
		scale = 1
	}
	var bias [3]arg
	for i := range bias {
		if c.Attr.Bias {
			bias[i] = buffer(11 + i)
		}
	}
	weights := []arg{buffer(2), buffer(3), buffer(4), bias[0], bias[1], bias[2], buffer(5), buffer(8), buffer(9), buffer(10), buffer(out), buffer(out + 1), buffer(out + 2), i64(rows), i64(k)}
	places := []arg{i64(c.Attr.Heads), i64(c.Attr.KVHeads), i64(size), i64(half), f32(scale), i64(cache.Shape[2]), i64(table[0]), i64(table[1]), i64(cache.Shape[0])}
	if f, fits := d.newFewRows(t, rows, k, tiles, true); fits && !c.Attr.Exact {
		return f.launch(d, t, "normHeads", slices.Concat([]arg{buffer(0), buffer(1)}, weights, []arg{f32(c.Attr.Eps)}, places)...)
	}
	f, fits := d.newManyRows(t, rows, k, tiles, c.Attr.Exact)
	if !fits {
		return p, none
	}
	x, turns, err := f.norm(d, &p, c.Attr.Eps, buffer(8), buffer(5), half, scale)
	if err != nil {
		return p, err
	}
	err = f.launch(d, &p, "headTiles", slices.Concat([]arg{x}, weights, places, []arg{turns})...)
	return p, err
}
