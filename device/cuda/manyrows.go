package cuda

import (
	"fmt"
	"unsafe"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
)

// Matmuls of more rows than decode.cu is fast for, on GPUs of the Hopper generation (hopperRows.cu, hopperThin.cu): with its bits, so
// that exact rows may be computed by either.

// matmulTiles is y = x·wᵀ (+ bias) (+ plus).
type matmulTiles struct {
	m, n, k             int64
	x, w, bias, plus, y arg
	step                int64 // elements from a row of y to the next; 0 for n
	constant            bool
}

// Sizes of the kernels.
const (
	rowsOfTile = 128 // TILE
	tileChains = 8   // CHAINS
	thinRows   = 64  // ROWS_OF_W
)

// tileForm is how a kernel works: rows of x and of w of a tile, stages of its ring, and how many blocks of a cluster share a tile.
type tileForm struct{ rows, width, stages, split int64 }

// tileForms are those there are.
var tileForms = []tileForm{{rowsOfTile, 128, 6, 1}, {rowsOfTile, 192, 5, 1}, {rowsOfTile, 144, 6, 4}, {rowsOfTile, 192, 5, 4},
	{16, thinRows, 8, 1}, {32, thinRows, 6, 1}, {16, thinRows, 8, 2}, {32, thinRows, 6, 2}}

// thin says that w is the left factor.
func (f tileForm) thin() bool { return f.rows < rowsOfTile }

// fits says whether the form is for so many rows, of so many elements.
func (f tileForm) fits(m, k int64) bool {
	return (!f.thin() || m <= f.rows) && (f.split == 1 || k >= decodeSpan*tileChains)
}

func (f tileForm) name() string {
	name := fmt.Sprintf("matmulTiles%d", f.width)
	if f.thin() {
		name = fmt.Sprintf("matmulThin%d", f.rows)
	}
	if f.split > 1 {
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
func (f tileForm) clusters(m, n int64) int64 { return ceilDiv(m, f.rows) * ceilDiv(n, f.width) }

// unit is that of the kernel: panels are a span wide.
func (f tileForm) unit(t dtype.Type) unit {
	if f.thin() {
		return unit{file: "hopperThin", element: t, head: decodeSpan}
	}
	return unit{file: "hopperRows", element: t, head: decodeSpan}
}

// byTiles says whether these kernels compute a matmul with weights: exact ones of more rows than decode.cu is fast for, others where
// they are faster than cuBLASLt: since they fetch weights before the kernel in front has ended.
func (d *Device) byTiles(exact bool, t dtype.Type, m, n, k int64) bool {
	if d.gpu.major != 9 || d.plainly.copies || d.lib.CUDA.Describe == nil || t != dtype.BF16 && t != dtype.F16 || k%8 != 0 || k < 8 || max(m, n, k) >= 1<<31 {
		return false
	}
	const fastest = 16
	return m > fewestRows && (exact || m <= fastest && !d.plainly.thick) && tileForms[2].shared() <= int64(d.gpu.shared)
}

// form chooses what keeps multiprocessors busy.
func (x matmulTiles) form(d *Device) tileForm {
	if own := d.plainly.tile; own > 0 {
		return tileForms[own-1]
	}
	all := int64(d.gpu.multiprocessors)
	if x.m <= 32 {
		at := 4
		if x.m > 16 {
			at = 5
		}
		if x.k >= 8192 && tileForms[at].clusters(x.m, x.n) <= all/2 {
			at += 2
		}
		return tileForms[at]
	}
	for _, f := range tileForms[2:4] { // clusters of four do not fill all parts of a GPU
		if f.fits(x.m, x.k) && f.clusters(x.m, x.n) <= all/f.split-all/40 {
			return f
		}
	}
	waves := func(f tileForm) int64 { return ceilDiv(f.clusters(x.m, x.n), all) * f.width }
	if waves(tileForms[1]) <= waves(tileForms[0]) {
		return tileForms[1]
	}
	return tileForms[0]
}

func (x matmulTiles) launch(d *Device, t dtype.Type) (*tiledLaunch, error) {
	f := x.form(d)
	grid := f.clusters(x.m, x.n) * f.split
	if f.split == 1 {
		grid = min(grid, int64(d.gpu.multiprocessors))
	}
	if x.step == 0 {
		x.step = x.n
	}
	k, err := d.grid(f.unit(t), f.name(), [3]int64{grid, 1, 1}, [3]int64{hopperThreads, 1, 1}, f.shared(),
		arg{}, arg{}, x.bias, x.plus, x.y, i64(x.m), i64(x.n), i64(x.k), i64(x.step), flag(x.constant))
	if err != nil {
		return nil, err
	}
	k.early, k.cluster = true, uint32(f.split)
	return &tiledLaunch{kernelLaunch: k, at: []arg{x.x, x.w}, tiles: []driver.Tiles{panels(t, x.m, x.k, f.rows), panels(t, x.n, x.k, f.width)}}, nil
}

// panels describes a matrix of so many rows of k elements, of which the copy engine fetches spans of some rows at a time.
func panels(t dtype.Type, rows, k, high int64) driver.Tiles {
	return driver.Tiles{Float16: t == dtype.F16, Rows: rows, Columns: k, Step: t.Bytes(k), High: uint32(high), Wide: decodeSpan}
}

// gatedTiles is y = f(x·gateᵀ)·(x·upᵀ) of few rows, with the bits of two matmuls and what gates their results.
type gatedTiles struct {
	m, n, k        int64
	x, gate, up, y arg
	function       op.Func
}

// gatedTogether says whether there is such a kernel for so many rows.
func gatedTogether(rows int64) bool { return rows <= 32 }

func (x gatedTiles) launch(d *Device, t dtype.Type) (*tiledLaunch, error) {
	f := tileForms[4]
	if x.m > f.rows {
		f = tileForms[5]
	}
	grid := min(f.clusters(x.m, 2*x.n), int64(d.gpu.multiprocessors))
	k, err := d.grid(f.unit(t), fmt.Sprintf("gatedThin%d", f.rows), [3]int64{grid, 1, 1}, [3]int64{hopperThreads, 1, 1}, f.shared(),
		arg{}, arg{}, arg{}, x.y, i64(x.m), i64(x.n), i64(x.k), i64(int64(x.function)))
	if err != nil {
		return nil, err
	}
	k.early, k.cluster = true, 1
	half := f.width / 2 // of a tile is of each matrix
	return &tiledLaunch{kernelLaunch: k, at: []arg{x.x, x.gate, x.up}, tiles: []driver.Tiles{panels(t, x.m, x.k, f.rows), panels(t, x.n, x.k, half), panels(t, x.n, x.k, half)}}, nil
}

// headsTogether says whether headsThin of hopperThin.cu does what NormHeads does with rows that are normalized: positions turn whole heads, and
// the cache has the elements of the rows.
func (d *Device) headsTogether(c op.Call, rows, k int64) bool {
	h := storedHeads(c)
	outputs := (h.Heads + 2*h.KVHeads) * h.d
	return d.byTiles(c.Attr.Exact, h.element, rows, outputs, k) && rows <= tileForms[4].rows && !c.Attr.Bias && h.d%thinRows == 0 && 2*c.In[5].Shape[0] == h.d && h.keys.DType == h.element && h.values.DType == h.element
}

// launchHeads prepares it for rows at x.
func (d *Device) launchHeads(c op.Call, x arg, rows, k int64, scale float64) (*tiledLaunch, error) {
	f, h := tileForms[4], storedHeads(c)
	grid := min(f.clusters(rows, (h.Heads+2*h.KVHeads)*h.d), int64(d.gpu.multiprocessors))
	step, err := d.grid(f.unit(h.element), fmt.Sprintf("headsThin%d", f.rows), [3]int64{grid, 1, 1}, [3]int64{hopperThreads, 1, 1}, f.shared(),
		append([]arg{{}, {}, {}, {}, buffer(5), h.o, h.cacheK, h.cacheV, i64(h.d), i64(k), f32(scale)}, h.args()...)...)
	if err != nil {
		return nil, err
	}
	step.early, step.cluster = true, 1
	keys := panels(h.element, h.KVHeads*h.d, k, f.width/2)
	return &tiledLaunch{kernelLaunch: step, at: []arg{x, buffer(2), buffer(3), buffer(4)},
		tiles: []driver.Tiles{panels(h.element, rows, k, f.rows), panels(h.element, h.Heads*h.d, k, f.width/2), keys, keys}}, nil
}

// maxPanels is how many matrices a launch describes at most.
const maxPanels = 4

// tiledLaunch is a kernel whose first parameters describe matrices to the copy engine.
type tiledLaunch struct {
	*kernelLaunch
	at    []arg
	tiles []driver.Tiles
}

func (k *tiledLaunch) run(q *queue, l *device.Launch) error {
	if q.maps == nil {
		const align = 64
		space := make([]byte, unsafe.Sizeof(*q.maps)+align)
		q.maps = (*[maxPanels]driver.TensorMap)(unsafe.Pointer(&space[(align-uintptr(unsafe.Pointer(&space[0]))%align)%align]))
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
