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
}

// Sizes of hopperRows.cu.
const (
	rowsOfTile = 128 // TILE
	tileSplit  = 4   // SPLIT
	tileChains = 8   // CHAINS
	thinRows   = 64  // ROWS_OF_W of hopperThin.cu
)

// tileForm is how a kernel of hopperRows.cu or hopperThin.cu works: rows of x and of w of a tile, stages of its ring, how many blocks of a
// cluster share rows of x, and how many share a tile.
type tileForm struct{ rows, width, stages, share, split int64 }

// tileForms are those there are.
var tileForms = []tileForm{{128, 128, 6, 1, 1}, {128, 192, 5, 1, 1}, {128, 128, 6, 2, 1}, {128, 192, 5, 2, 1}, {128, 128, 6, 4, 1}, {128, 64, 8, 2, 1}, {128, 64, 8, 4, 1}, {128, 32, 8, 2, 1}, {128, 32, 8, 4, 1}, {128, 48, 8, 2, 1},
	{128, 128, 6, 1, tileSplit}, {128, 144, 6, 1, tileSplit}, {128, 160, 6, 1, tileSplit}, {128, 192, 5, 1, tileSplit},
	{16, thinRows, 8, 1, 1}, {32, thinRows, 6, 1, 1}, {16, thinRows, 8, 1, 2}, {32, thinRows, 6, 1, 2}}

// thin says that W is the left factor.
func (f tileForm) thin() bool { return f.rows < rowsOfTile }

// fits says whether the form is for so many rows, of so many elements.
func (f tileForm) fits(m, k int64) bool {
	return (!f.thin() || m <= f.rows) && (f.split == 1 || f.thin() || k >= decodeSpan*tileChains)
}

func (f tileForm) name() string {
	name := fmt.Sprintf("matmulTiles%d", f.width)
	if f.thin() {
		name = fmt.Sprintf("matmulThin%d", f.rows)
	}
	switch {
	case f.share > 1:
		name += fmt.Sprintf("Share%d", f.share)
	case f.split == tileSplit:
		name += "Split"
	case f.split > 1:
		name += fmt.Sprintf("Split%d", f.split)
	}
	return name
}

// shared is the memory of a block: the ring, and sums of a tile.
func (f tileForm) shared() int64 {
	ring := f.stages * 2 * decodeSpan * (f.rows + f.width)
	switch {
	case f.thin():
		return tileAlignment + 2*ring + 4*tileChains/f.split*f.rows*(thinRows+4)
	case f.split > 1:
		ring = max(ring, 2*4*rowsOfTile*(f.width+8))
	}
	return tileAlignment + ring
}

// clusters is how many there are for a matmul.
func (f tileForm) clusters(m, n int64) int64 { return ceilDiv(m, f.rows) * ceilDiv(n, f.width*f.share) }

// unit is that of the kernel: panels are a span wide.
func (f tileForm) unit(t dtype.Type) unit {
	if f.thin() {
		return unit{file: "hopperThin", element: t, head: decodeSpan}
	}
	return unit{file: "hopperRows", element: t, head: decodeSpan}
}

// fitsTiles says whether there is a kernel for exact matmuls of so many rows.
func (d *Device) fitsTiles(t dtype.Type, m, n, k int64) bool {
	return d.gpu.major == 9 && !d.plainly.copies && d.lib.CUDA.Describe != nil && (t == dtype.BF16 || t == dtype.F16) && (m > ownRows || d.plainly.tile > 0) && k%8 == 0 && k >= 8 &&
		max(m, n, k) < 1<<31 && tileForms[12].shared() <= int64(d.gpu.shared)
}

// form chooses what keeps multiprocessors busy.
func (x matmulTiles) form(d *Device) tileForm {
	if own := d.plainly.tile; own > 0 {
		return tileForms[own-1]
	}
	all, at := int64(d.gpu.multiprocessors), 0
	if tileForms[0].clusters(x.m, x.n) <= all/2 && x.k >= decodeSpan*tileChains {
		return tileForms[13]
	}
	if ceilDiv(tileForms[1].clusters(x.m, x.n), all)*192 <= ceilDiv(tileForms[0].clusters(x.m, x.n), all)*128 {
		at = 1
	}
	return tileForms[at]
}

func (x matmulTiles) launch(d *Device, t dtype.Type) (*tiledLaunch, error) {
	f := x.form(d)
	cluster := f.share * f.split
	grid := f.clusters(x.m, x.n) * cluster
	if f.split == 1 {
		grid = min(grid, int64(d.gpu.multiprocessors)/cluster*cluster)
	}
	if x.step == 0 {
		x.step = x.n
	}
	k, err := d.grid(f.unit(t), f.name(), [3]int64{grid, 1, 1}, [3]int64{hopperThreads, 1, 1}, f.shared(),
		arg{}, arg{}, x.bias, x.plus, x.y, i64(x.m), i64(x.n), i64(x.k), i64(x.step), flag(x.constant))
	if err != nil {
		return nil, err
	}
	k.early, k.cluster = true, uint32(cluster)
	described := func(rows int64, high int64) driver.Tiles {
		return driver.Tiles{Float16: t == dtype.F16, Rows: rows, Columns: x.k, Step: t.Bytes(x.k), High: uint32(high), Wide: decodeSpan}
	}
	return &tiledLaunch{kernelLaunch: k, at: [2]arg{x.x, x.w}, tiles: [2]driver.Tiles{described(x.m, f.rows/f.share), described(x.n, f.width)}}, nil
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
