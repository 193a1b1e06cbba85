package cuda

import (
	"errors"

	"spillway/dtype"
)

// Attention by kernels for GPUs of the Hopper generation (hopper.cu, hopperGrad.cu): as fast
// over packed documents, windows and key masks as over dense samples.

// Sizes in the kernels.
const (
	tileRows      = 128     // rows of a tile
	hopperKeys    = 128     // keys at a time in the forward kernel
	hopperStrip   = 64      // keys, or queries, at a time in those of the gradient
	hopperThreads = 384     // of a block
	tileInts      = 12      // of a tile in a list
	listInts      = 16      // in front of a list
	listOwn       = 3 << 10 // bytes of shared memory that the kernel which makes lists declares itself, or more
)

// mostTiles of one sample. Of documents that share none, two neighbouring tiles have more than
// tileRows rows; the others have one at most for each tileRows/2 rows.
func (h heads) mostTiles() int64 { return 2*ceilDiv(h.t, tileRows/2) + 1 }

// listShared is the shared memory of the kernel that makes lists of tiles, in bytes.
func (h heads) listShared() int64 {
	words := ceilDiv(h.t, 32)
	return 4 * h.b * (words + 5 + ceilDiv(words, 32) + 1 + 6*h.mostTiles())
}

// fitsHopper says that the kernels take the call.
func (h heads) fitsHopper(d *Device) bool {
	a := h.c.Attr
	return d.gpu.major == 9 && !d.options.Ampere && h.c.In[0].DType != dtype.F32 && h.d%16 == 0 && h.d >= 32 && h.d <= 128 && h.t == h.s &&
		a.Scale > 0 && !a.Mask && h.listShared() <= int64(d.gpu.shared)-listOwn
}

// hopperUnit is a file of the kernels for the call.
func (h heads) hopperUnit(file string) unit {
	return unit{file: file, element: h.c.In[0].DType, head: h.d, keys: hopperKeys, masks: h.masks(), dropout: h.dropout()}
}

// tileLists appends a kernel that makes lists of tiles at the end of the scratch memory, and
// returns where they are: the first by keys to go over, the second by queries. Without
// documents there are none.
func (h heads) tileLists(d *Device, p *program, count int64) (lists [2]arg, err error) {
	if !h.c.Attr.Segments {
		return lists, nil
	}
	size := ceilDiv(listInts+tileInts*h.b*h.mostTiles(), 64) * 64 // ints of a list
	lists = [2]arg{scratchAt(p.workspace), scratchAt(p.workspace + 4*size)}
	p.workspace += aligned(4 * size * count)
	return lists, p.add(d.grid(unitFor("documents", h.c.In[0].DType), "documentTiles", [3]int64{1, 1, 1}, [3]int64{1024, 1, 1}, h.listShared(),
		buffer(h.optional), lists[0], i64(size), i64(count), i64(h.b), i64(h.t), i64(h.mostTiles()), flag(h.c.Attr.Causal), i64(h.c.Attr.Window)))
}

// stay prepares a kernel whose blocks, one for each multiprocessor, take turns at tiles.
func (h heads) stay(d *Device, file, name string, shared int64, list arg, args ...arg) (*kernelLaunch, error) {
	query, key := h.steps()
	args = append(append(args, i64(query), i64(key), i64(h.b), list), h.maskArgs(arg{})...)
	return d.grid(h.hopperUnit(file), name, [3]int64{int64(d.gpu.multiprocessors), 1, 1}, [3]int64{hopperThreads, 1, 1}, shared, args...)
}

// tileBytes is the shared memory of so many rows of a head: in panels of 64 elements.
func (h heads) tileBytes(rows int64) int64 { return ceilDiv(h.d, 64) * rows * 128 }

// tileAlignment is where tiles begin in shared memory, in bytes.
const tileAlignment = 1024

func (h heads) forwardHopper(d *Device) (p program, err error) {
	lists, err := h.tileLists(d, &p, 1)
	if err != nil {
		return p, err
	}
	err = p.add(h.stay(d, "hopper", "attention", tileAlignment+h.tileBytes(2*tileRows+4*hopperKeys), lists[0],
		h.operand(0), h.operand(1), h.operand(2), h.output(0), h.output(1)))
	return p, err
}

func (h heads) gradientHopper(d *Device) (program, error) {
	stages := int64(3) // of strips in shared memory, in addition to two tiles
	if h.dropout() {
		stages = 2
	}
	shared := tileAlignment + h.tileBytes(4*tileRows+2*stages*hopperStrip)
	return h.gradientByTiles(d, h.dealt(ceilDiv(h.t, tileRows), int64(d.gpu.multiprocessors)), func(name string, list arg, args ...arg) (*kernelLaunch, error) {
		return h.stay(d, "hopperGrad", name, shared, list, args...)
	})
}

// The kernels of a gradient.
const (
	gradQueries = "attentionGradQueries"
	gradKeys    = "attentionGradKeys"
)

// gradientByTiles has the operands of gradient, and like it sums every element in one order:
// dk and dv in n parts. The kernel that makes dq also writes what the other needs of each query.
func (h heads) gradientByTiles(d *Device, n int64, launch func(name string, list arg, args ...arg) (*kernelLaunch, error)) (p program, err error) {
	take := func(bytes int64) arg {
		at := scratchAt(p.workspace)
		p.workspace += aligned(bytes)
		return at
	}
	rows, size := h.b*h.t*h.heads, h.c.Out[1].Shape.Elements()
	totals, delta, lines, parts := take(4*rows), take(4*rows), arg{}, arg{}
	if h.dropout() {
		lines = take(8 * rows)
	}
	if n > 1 {
		parts = take(2 * n * 4 * size)
	}
	lists, err := h.tileLists(d, &p, 2)
	if err != nil {
		return p, err
	}
	err = errors.Join(
		p.add(launch(gradQueries, lists[0], h.operand(0), h.operand(1), h.operand(2), h.operand(3), h.operand(4), h.operand(5), totals, delta, lines, h.output(0))),
		p.add(launch(gradKeys, lists[1], h.operand(0), h.operand(1), h.operand(2), h.operand(5), totals, delta, lines, h.output(1), h.output(2), parts, i64(n))))
	return p, errors.Join(err, h.foldParts(d, &p, int64(parts.bits), n))
}
