package cuda

import (
	"fmt"
	"unsafe"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/dtype"
)

// Exact matmuls of more rows than decode.cu takes at once, on GPUs of the Hopper generation (hopperRows.cu).

// matmulTiles is y = x·wᵀ (+ bias) (+ plus), with the bits of fewRows.
type matmulTiles struct {
	m, n, k             int64
	x, w, bias, plus, y arg
	step                int64 // elements from a row of y to the next; 0 for n
	constant            bool
	width               int64 // of tiles
	split               bool  // clusters share tiles
}

// Sizes of hopperRows.cu.
const (
	rowsOfTile = 128 // TILE
	tileSplit  = 4   // SPLIT
	tileChains = 8   // CHAINS
)

// tileStages are the widths of tiles there are, with the stages of their rings.
var tileStages = map[int64]int64{128: 6, 192: 5}

// tilesUnit is the unit of hopperRows.cu: panels are a span wide.
func tilesUnit(t dtype.Type) unit { return unit{file: "hopperRows", element: t, head: decodeSpan} }

// fitsTiles says whether there is a kernel for exact matmuls of so many rows.
func (d *Device) fitsTiles(t dtype.Type, m, n, k int64) bool {
	return d.gpu.major == 9 && !d.plainly.copies && d.lib.CUDA.Describe != nil && (t == dtype.BF16 || t == dtype.F16) && m > ownRows && k%8 == 0 && k >= 8 &&
		max(m, n, k) < 1<<31 && tilesShared(192, true) <= int64(d.gpu.shared)
}

// tilesShared is the memory of a block: the ring, or two sums of a tile.
func tilesShared(width int64, split bool) int64 {
	bytes := tileStages[width] * 2 * decodeSpan * (rowsOfTile + width)
	if split {
		bytes = max(bytes, 2*4*rowsOfTile*(width+8))
	}
	return tileAlignment + bytes
}

// shape decides the width of tiles, and whether clusters share them: what keeps multiprocessors busy.
func (x *matmulTiles) shape(d *Device) {
	if own := d.plainly.tile; own != 0 {
		x.width, x.split = max(own, -own), own < 0
		return
	}
	tiles := func(width int64) int64 { return ceilDiv(x.m, rowsOfTile) * ceilDiv(x.n, width) }
	all := int64(d.gpu.multiprocessors)
	at := all
	if x.split = tiles(128) <= all/2 && x.k >= decodeSpan*tileChains; x.split {
		at = all / tileSplit
	}
	x.width = 128
	if ceilDiv(tiles(192), at)*192 <= ceilDiv(tiles(128), at)*128 {
		x.width = 192
	}
}

func (x matmulTiles) launch(d *Device, t dtype.Type) (*tiledLaunch, error) {
	x.shape(d)
	width, split := x.width, x.split
	name, grid, cluster := fmt.Sprintf("matmulTiles%d", width), ceilDiv(x.m, rowsOfTile)*ceilDiv(x.n, width), uint32(0)
	if split {
		name, grid, cluster = name+"Split", grid*tileSplit, tileSplit
	} else {
		grid = min(grid, int64(d.gpu.multiprocessors))
	}
	if x.step == 0 {
		x.step = x.n
	}
	k, err := d.grid(tilesUnit(t), name, [3]int64{grid, 1, 1}, [3]int64{hopperThreads, 1, 1}, tilesShared(width, split),
		arg{}, arg{}, x.bias, x.plus, x.y, i64(x.m), i64(x.n), i64(x.k), i64(x.step), flag(x.constant))
	if err != nil {
		return nil, err
	}
	k.early, k.cluster = true, cluster
	described := func(rows int64, high int64) driver.Tiles {
		return driver.Tiles{Float16: t == dtype.F16, Rows: rows, Columns: x.k, Step: t.Bytes(x.k), High: uint32(high), Wide: decodeSpan}
	}
	return &tiledLaunch{kernelLaunch: k, at: [2]arg{x.x, x.w}, tiles: [2]driver.Tiles{described(x.m, rowsOfTile), described(x.n, width)}}, nil
}

// tiledLaunch is a kernel whose first two parameters describe matrices to the copy engine.
type tiledLaunch struct {
	*kernelLaunch
	at    [2]arg
	tiles [2]driver.Tiles
}

func (k *tiledLaunch) run(q *queue, l *device.Launch) error {
	if q.maps == nil {
		const align = 64
		space := make([]byte, unsafe.Sizeof(*q.maps)+align)
		q.maps = (*[2]driver.TensorMap)(unsafe.Pointer(&space[(align-uintptr(unsafe.Pointer(&space[0]))%align)%align]))
	}
	for i, t := range k.tiles {
		t.Address = driver.Pointer(k.at[i].value(l))
		if err := q.device.lib.CUDA.Describe(&q.maps[i], t); err != nil {
			return fmt.Errorf("kernel %s: %w", k.function.name, err)
		}
		own := q.params[i]
		q.params[i] = unsafe.Pointer(&q.maps[i])
		defer func() { q.params[i] = own }()
	}
	return k.kernelLaunch.run(q, l)
}
