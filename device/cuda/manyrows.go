package cuda

import "spillway/dtype"

// manyRows is a matmul of tens to hundreds of rows by hopperRows.cu, with what decides its
// launch. Blocks and shares follow from the weights and the GPU alone, so that the bits of a row do not
// depend on how many rows there are.
type manyRows struct {
	element dtype.Type
	rows, k int64
	tiles   int64 // of 16 rows of weights
	blocks  int64 // of 128 rows of weights that a block takes: TILES
	share   int64 // blocks that sum over a part of k each
	keys    int64 // rows of x that a block takes: KEYS
}

// Sizes of hopperRows.cu.
const (
	tilePiece   = 64  // PIECE
	tileThreads = 512 // of a block
	mostKeys    = 128 // rows of x of a block
	mostShare   = 8   // blocks of a cluster
)

// mostManyRows is up to how many rows these kernels are faster than cuBLASLt: none, so they are taken
// where rows are to be exact. A step of 128 rows of the Llama-3-8B shape takes 2.5 times as long with
// them on an H200, one of a row twice as long as with those of decode.cu.
const mostManyRows = 0

// newManyRows plans a matmul; ok is false where there is no kernel for it, or a faster one unless
// rows are to be exact.
func (d *Device) newManyRows(t dtype.Type, rows, k, tiles int64, exact bool) (f manyRows, ok bool) {
	if d.gpu.major != 9 || d.options.Ampere || t != dtype.BF16 && t != dtype.F16 || rows < 1 || rows > mostManyRows && !exact || k%tilePiece != 0 || k < tilePiece || tiles < 1 {
		return f, false
	}
	f = manyRows{element: t, rows: rows, k: k, tiles: tiles, keys: 16}
	for f.keys < min(rows, mostKeys) {
		f.keys *= 2
	}
	least := int64(0)
	for blocks := int64(2); blocks >= 1; blocks-- {
		for share := int64(1); share <= mostShare && share <= k/tilePiece; share *= 2 {
			items, clusters := ceilDiv(tiles, 8*blocks), max(1, int64(d.gpu.multiprocessors)/share)
			const x, end = 1, 2 // what fetching x and adding shares take, in units of 128 rows of weights
			took := ceilDiv(items, clusters) * (ceilDiv(k/tilePiece, share)*(2*blocks+x) + end*blocks*min(share-1, 1))
			if least == 0 || took < least {
				least, f.blocks, f.share = took, blocks, share
			}
		}
	}
	return f, true
}

// stages are as many as fit.
func (f manyRows) stages(shared int64) int64 {
	const own = 2 << 10 // for the alignment of tiles, and what a block declares itself
	return min(12, (shared-own)/f.stage())
}

// stage is the bytes of one.
func (f manyRows) stage() int64 { return 128 * (128*f.blocks + f.keys) }

func (f manyRows) unit(d *Device) unit {
	return unit{file: "hopperRows", element: f.element, head: tilePiece, keys: f.keys, tiles: f.blocks, stages: f.stages(int64(d.gpu.shared)), blocks: 1}
}

// launch appends a kernel of hopperRows.cu.
func (f manyRows) launch(d *Device, p *program, name string, args ...arg) error {
	items := ceilDiv(f.tiles, 8*f.blocks) * ceilDiv(f.rows, f.keys)
	clusters := min(items, max(1, int64(d.gpu.multiprocessors)/f.share))
	shared := tileAlignment + f.stages(int64(d.gpu.shared))*f.stage()
	k, err := d.grid(f.unit(d), name, [3]int64{clusters * f.share, 1, 1}, [3]int64{tileThreads, 1, 1}, shared, args...)
	if err == nil {
		k.cluster = uint32(f.share)
	}
	return p.addEarly(k, err)
}

// norm appends the norm of operand 0 by operand 1, and returns where in the scratch memory it
// is. Where heads are turned, cosines and sines of positions times half frequencies are behind it.
func (f manyRows) norm(d *Device, p *program, eps float64, positions, freq arg, half int64, scale float64) (normed, turns arg, err error) {
	normed = scratchAt(p.workspace)
	p.workspace += aligned(f.element.Bytes(f.rows * f.k))
	turns = scratchAt(p.workspace)
	p.workspace += aligned(8 * f.rows * half)
	return normed, turns, p.addEarly(d.grid(f.unit(d), "normRows", [3]int64{f.rows, 1, 1}, [3]int64{256, 1, 1}, 0, buffer(0), buffer(1), normed, i64(f.k), f32(eps),
		positions, freq, i64(half), f32(scale), turns))
}
