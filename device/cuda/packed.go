package cuda

import (
	"cmp"
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/op"
	"spillway/quant"
)

func init() {
	register(op.QuantizedPlus, quantizedPlus)
}

// tileFormat is what launches of packed.cu must know of a format: see tiles/tile.h.
type tileFormat struct {
	bytes, bank          int64
	integer, sums, table bool
}

// tileFormats have kernels for few rows of 16-bit elements.
var tileFormats = map[dtype.Type]tileFormat{
	quant.Q4_K:  {bytes: 144, bank: 32, integer: true, sums: true},
	quant.Q5_K:  {bytes: 176, bank: 32, integer: true, sums: true},
	quant.Q6_K:  {bytes: 210, bank: 16, integer: true, sums: true},
	quant.Q8_0:  {bytes: 272, bank: 16, integer: true},
	quant.Q4_0:  {bytes: 144, bank: 16, integer: true, sums: true},
	quant.RowI8: {bytes: 256, bank: 32, integer: true},
	quant.RowF8: {bytes: 256, bank: 32},
	quant.NF4:   {bytes: 128, bank: 32, table: true},
	quant.FP4:   {bytes: 128, bank: 32, table: true},
	quant.Q4_1:  {bytes: 160, bank: 16, integer: true, sums: true},
	quant.Q5_0:  {bytes: 176, bank: 16, integer: true, sums: true},
	quant.Q5_1:  {bytes: 192, bank: 16, integer: true, sums: true},
	quant.IQ4NL: {bytes: 144, bank: 16, integer: true},
	quant.MXFP4: {bytes: 136, bank: 16, integer: true},
	quant.IQ4XS: {bytes: 136, bank: 16, integer: true},
	quant.Q2_K:  {bytes: 84, bank: 16, integer: true, sums: true},
	quant.Q3_K:  {bytes: 110, bank: 16, integer: true, sums: true},
}

// Sizes of packed.cu.
const (
	packedGroup = 8                  // GROUP
	packedSlots = 16                 // SLOTS
	packedOther = 2 + 1              // FETCHERS and STORERS
	packedUnit  = 256                // UNIT, elements
	packedTable = 4 * (256*32 + 256) // TABLE, in bytes
	packedRows  = 8                  // the most rows at once
)

// stage is the shared memory of a piece of 16 rows, pitchOf of packed.cu each.
func (f tileFormat) stage() int64 {
	pitch := packedGroup * f.bytes
	if f.bytes%16 != 0 {
		pitch += 16
	}
	return 16 * (pitch + (f.bank-pitch%128+128)%128)
}

// packedStages is the most stages of a ring, MAX_STAGES, and packedWhole says that blocks have a multiprocessor each: others are for
// trying.
var (
	packedStages int64 = 16
	packedWhole  bool
)

// packed is a product of few rows by packed.cu, with what decides its launch.
type packed struct {
	element       dtype.Type
	first, second dtype.Type // formats of the matrices, and of the last of three
	rows, k       int64
	tiles         int64
	stages        int64 // of the ring of a block
	half          bool  // of a multiprocessor is what a block takes
}

// warps is how many multiply: more rows take more registers each.
func (p packed) warps() int64 {
	if p.rows > 2 || p.half {
		return packedSlots / 2
	}
	return packedSlots
}

// shared is the memory of a block that its launch asks for.
func (p packed) shared() int64 {
	f, s := tileFormats[p.first], tileFormats[p.second]
	bytes := p.stages*max(f.stage(), s.stage()) + 2*packedSlots*16*p.rows*4 + 2*p.rows*p.k
	if f.sums || s.sums {
		bytes += 4 * p.rows * p.k / 16
	}
	if f.integer {
		bytes += 4 * p.rows * p.k / 32
	}
	return bytes
}

// own is the shared memory that the kernel declares itself, at most.
func (p packed) own() int64 {
	if tileFormats[p.first].table || tileFormats[p.second].table {
		return 512 + packedTable
	}
	return 512
}

// planned decides the launch; ok is false where there is no kernel for it.
func (p packed) planned(d *Device) (packed, bool) {
	f, first := tileFormats[p.first]
	s, second := tileFormats[p.second]
	if p.element != dtype.BF16 && p.element != dtype.F16 || !first || !second || f.integer != s.integer || p.k < packedUnit || p.k%packedUnit != 0 || p.tiles < 1 || d.gpu.major < 8 {
		return p, false
	}
	if f.table && s.table && p.first != p.second { // a block has one table
		return p, false
	}
	// A block of integers of 8 bits, which are much to fetch and little to compute, leaves room for one of the next kernel, which then
	// fetches while the last ones end. Other formats have too few warps then.
	if p.half = p.rows == 1 && p.first == quant.RowI8 && p.second == p.first && !packedWhole; p.half {
		const reserved = 1 << 10 // for each block, next to what it may have
		if all, fits := p.staged((int64(d.gpu.shared)+reserved)/2 - reserved); fits {
			return all, true
		}
		p.half = false
	}
	return p.staged(int64(d.gpu.shared))
}

// staged gives the ring as many stages as fit.
func (p packed) staged(room int64) (packed, bool) {
	// a stage belongs to one group of warps: another would not know which turn of it is meant
	groups := p.warps() / packedGroup
	for p.stages = packedStages / groups * groups; p.stages >= 2; p.stages -= groups {
		if p.shared()+p.own() <= room {
			return p, true
		}
	}
	return p, false
}

// launch prepares a kernel of packed.cu.
func (p packed) launch(d *Device, name string, args ...arg) (*kernelLaunch, error) {
	u := unit{file: "packed", element: p.element, codec: p.first.String(), rows: p.rows, warps: p.warps(), plainly: d.plainly.copies}
	if p.second != p.first {
		u.other = p.second.String()
	}
	blocks := int64(d.gpu.multiprocessors)
	if p.half {
		u.blocks, blocks = 2, 2*blocks
	}
	k, err := d.grid(u, name, [3]int64{min(p.tiles, blocks), 1, 1}, [3]int64{(p.warps() + packedOther) * 32, 1, 1}, p.shared(), append(args, i64(p.stages))...)
	if err != nil {
		return nil, err
	}
	k.early = true
	return k, nil
}

// packedMatmul is a matmul of few rows with a packed weight, some rows at a time: 1, 2, 4 or 8. ok is
// false where there is no kernel.
func (d *Device) packedMatmul(c op.Call) (made program, ok bool, err error) {
	rows, n, k := c.In[0].Shape.Rows(), c.In[1].Shape[0], c.In[1].Shape[1]
	bias, plus, out := -1, -1, len(c.In)
	if c.Attr.Bias {
		bias = 2
	}
	if c.Kind == op.QuantizedPlus {
		plus = 2
	}
	if c.Attr.OutlierThreshold != 0 || bias >= 0 && c.In[2].DType != c.In[0].DType {
		return made, false, nil
	}
	size := c.In[0].DType.Bytes(1)
	for at := int64(0); at < rows; {
		group := int64(packedRows)
		var p packed
		for ok = false; group > 0; group /= 2 {
			p = packed{element: c.In[0].DType, first: c.In[1].DType, second: c.In[1].DType, rows: group, k: k, tiles: ceilDiv(n, 16)}
			if p, ok = p.planned(d); ok && group <= rows-at {
				break
			}
		}
		if !ok {
			return made, false, nil
		}
		var extra [2]arg
		if bias >= 0 {
			extra[0] = buffer(bias)
		}
		if plus >= 0 {
			extra[1] = bufferAt(plus, at*n*size)
		}
		l, err := p.launch(d, "packedRows", bufferAt(0, at*k*size), buffer(1), extra[0], extra[1], bufferAt(out, at*n*size), i64(n), i64(k))
		if err != nil {
			return made, true, err
		}
		made.actions = append(made.actions, l)
		at += group
	}
	return made, true, nil
}

func quantizedPlus(d *Device, c op.Call) (program, error) {
	p, ok, err := d.packedMatmul(c)
	if !ok {
		return program{}, unsupported(fmt.Sprintf("a matmul with a weight of %v that adds is for 16-bit elements and rows of a multiple of 256", c.In[1].DType))
	}
	return p, err
}

// atOnce says whether so many rows go through one kernel.
func atOnce(rows int64) bool { return slices.Contains([]int64{1, 2, 4, packedRows}, rows) }

func packedGated(d *Device, c op.Call) (program, error) {
	k, n, rows := c.In[0].Shape.Last(), c.In[2].Shape[0], c.In[0].Shape.Rows()
	p, ok := packed{element: c.In[0].DType, first: c.In[2].DType, second: c.In[2].DType, rows: rows, k: k, tiles: ceilDiv(n, 8)}.planned(d)
	if err := same(c.In[0], c.In[1]); err != nil || !ok || !atOnce(rows) || c.In[3].DType != c.In[2].DType || c.Attr.Func > op.SiLU {
		return program{}, unsupported("norm_gated of packed weights is for 1, 2, 4 or 8 rows of 16-bit elements")
	}
	return single(p.launch(d, "packedGated", buffer(0), buffer(1), buffer(2), buffer(3), buffer(4), i64(n), i64(k), i64(int64(c.Attr.Func)), f32(c.Attr.Eps)))
}

func packedHeads(d *Device, c op.Call) (program, error) {
	k, rows, h := c.In[0].Shape.Last(), c.In[0].Shape.Rows(), newNormedHeads(c)
	p, ok := packed{element: c.In[0].DType, first: c.In[2].DType, second: c.In[4].DType, rows: rows, k: k, tiles: (c.Attr.Heads + 2*c.Attr.KVHeads) * (h.size / 16)}.planned(d)
	if err := same(c.In[0], c.In[1]); err != nil || !ok || !atOnce(rows) || c.In[3].DType != c.In[2].DType || !h.fits {
		return program{}, unsupported("norm_heads of packed weights is for 1, 2, 4 or 8 rows of 16-bit elements, and heads of a multiple of 16")
	}
	var made program
	held := newStaged(&made, c)
	args := []arg{buffer(0), buffer(1), buffer(2), buffer(3), buffer(4), h.bias[0], h.bias[1], h.bias[2], buffer(5), buffer(8), buffer(9), held.pages,
		held.k, held.v, buffer(len(c.In) + 2), i64(k), f32(c.Attr.Eps)}
	err := made.add(p.launch(d, "packedHeads", append(args, h.places...)...))
	return made, cmp.Or(err, held.finish(d, &made))
}
