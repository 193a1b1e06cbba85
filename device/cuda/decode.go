package cuda

import (
	"spillway/dtype"
	"spillway/op"
)

func init() {
	register(op.NormHeads, normHeads)
	register(op.NormGated, normGated)
}

// maxRows is how many rows of x the kernels of decode.cu take.
const maxRows = 32

// fewRows is a product of few rows by decode.cu, with the sizes that decide its launch.
type fewRows struct {
	rows, k int64
	tiles   int64 // of 16 rows of weights
	ring    bool  // x goes through the rings of the lanes
}

// decodeWarps and decodeSpan are WARPS and SPAN of decode.cu.
const (
	decodeWarps = 8
	decodeSpan  = 64
)

// eights is how many times eight rows a kernel is compiled for.
func (f fewRows) eights() int64 { return powerOf2(ceilDiv(f.rows, 8)) }

// rowStages is STAGES of decode.cu.
var rowStages = int64(5)

// shared is the memory of a block: rings, sums of the warps twice, and x unless that is in
// the rings.
func (f fewRows) shared() int64 {
	parts, t := int64(4), f.eights()
	if f.ring {
		parts += 2 * t
	}
	bytes := decodeWarps*rowStages*parts*512 + 2*decodeWarps*16*8*t*4
	if !f.ring {
		bytes += 2 * f.rows * (ceilDiv(f.k, decodeSpan)*decodeSpan + 32)
	}
	return bytes
}

// maxSharedRows is the most shared memory that x may take in a block, so that the next
// kernel's block finds room next to it.
const maxSharedRows = 72 << 10

// newFewRows plans a product; ok is false where there is no kernel for it.
func (d *Device) newFewRows(t dtype.Type, rows, k, tiles int64) (f fewRows, ok bool) {
	f = fewRows{rows: rows, k: k, tiles: tiles}
	if t != dtype.BF16 && t != dtype.F16 || rows < 1 || rows > maxRows || k%8 != 0 || k < 8 || tiles < 1 {
		return f, false
	}
	f.ring = f.eights() == 4 || 2*rows*k > maxSharedRows
	return f, f.shared() <= int64(d.gpu.shared)
}

// blocks of the grid: one per multiprocessor, which leaves room for the next kernel's.
func (f fewRows) blocks(d *Device) int64 { return min(f.tiles, rowBlocks*int64(d.gpu.multiprocessors)) }

// ahead is how many bytes of each row of weights of a block are brought to the L2 cache before
// the kernel in front has ended: so many on the whole GPU.
func (f fewRows) ahead(d *Device) arg { return i64(aheadBytes / (16 * f.blocks(d))) }

// launch prepares a kernel of decode.cu.
func (f fewRows) launch(d *Device, t dtype.Type, name string, args ...arg) (program, error) {
	k, err := d.grid(unit{file: "decode", element: t, keys: rowStages}, name, [3]int64{f.blocks(d), 1, 1}, [3]int64{decodeWarps * 32, 1, 1}, f.shared(), args...)
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
	f, fits := d.newFewRows(t, m, k, ceilDiv(n, 16))
	if !fits || m > ownRows || c.Attr.TransA || !c.Attr.TransB || c.Attr.Accumulate || c.Attr.Bias && c.In[2].DType != t {
		return p, false, nil
	}
	name := [...]string{1: "matmulRows1", 2: "matmulRows2"}
	ring := [...]string{1: "matmulRowsRing1", 2: "matmulRowsRing2", 4: "matmulRowsRing4"}
	kernel := ""
	if f.ring {
		kernel = ring[f.eights()]
	} else {
		kernel = name[f.eights()]
	}
	bias, plus := arg{}, arg{}
	if c.Attr.Bias {
		bias = buffer(2)
	}
	if c.Attr.Plus {
		plus = buffer(2)
	}
	p, err = f.launch(d, t, kernel, buffer(0), buffer(1), bias, plus, buffer(len(c.In)), i64(m), i64(n), i64(k), f.ahead(d), flag(c.Attr.Constant))
	return p, true, err
}

// ownRows is up to how many rows our kernel is faster than cuBLASLt.
var ownRows int64 = 16

var rowBlocks int64 = 1

// aheadBytes of weights are brought to the L2 cache early.
var aheadBytes int64 = 32 << 20

func normGated(d *Device, c op.Call) (program, error) {
	t, k, n := c.In[0].DType, c.In[0].Shape.Last(), c.In[2].Shape[0]
	f, fits := d.newFewRows(t, c.In[0].Shape.Rows(), k, ceilDiv(n, 8))
	if err := same(c.In[0], c.In[1], c.In[2]); err != nil || !fits || f.ring || f.eights() > 2 || c.In[1].Shape[0] != k || c.Attr.Func > op.SiLU {
		return program{}, unsupported("norm_gated is for a few rows of 16-bit elements")
	}
	name := [...]string{1: "normGated1", 2: "normGated2"}[f.eights()]
	return f.launch(d, t, name, buffer(0), buffer(1), buffer(2), buffer(3), buffer(4), i64(f.rows), i64(n), i64(k), i64(int64(c.Attr.Func)), f32(c.Attr.Eps), f.ahead(d))
}

func normHeads(d *Device, c op.Call) (program, error) {
	t, k, cache := c.In[0].DType, c.In[0].Shape.Last(), c.In[6]
	size, half := cache.Shape[3], c.In[5].Shape[0]
	f, fits := d.newFewRows(t, c.In[0].Shape.Rows(), k, (c.Attr.Heads+2*c.Attr.KVHeads)*(size/16))
	if err := same(c.In[0], c.In[1], c.In[2], c.In[3], c.In[4], c.In[6], c.In[7]); err != nil || !fits || f.ring || f.eights() > 2 || c.In[1].Shape[0] != k ||
		size%16 != 0 || half%8 != 0 || c.Attr.Bias && same(append(c.In[11:14:14], c.In[0])...) != nil {
		return program{}, unsupported("norm_heads is for a few rows of 16-bit elements, as the cache has them, and heads of a multiple of 16")
	}
	name := [...]string{1: "normHeads1", 2: "normHeads2"}[f.eights()]
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
	return f.launch(d, t, name, buffer(0), buffer(1), buffer(2), buffer(3), buffer(4), bias[0], bias[1], bias[2], buffer(5), buffer(8), buffer(9), buffer(10),
		buffer(out), buffer(out+1), buffer(out+2), i64(f.rows), i64(k), f32(c.Attr.Eps), f.ahead(d), i64(c.Attr.Heads), i64(c.Attr.KVHeads), i64(size), i64(half), f32(scale),
		i64(cache.Shape[2]), i64(table[0]), i64(table[1]), i64(cache.Shape[0]))
}
