package cuda

import "spillway/dtype"

// Attention by kernels for GPUs of the Ampere and Ada generations (ampere.cu, ampereGrad.cu):
// over packed documents, windows and key masks as over dense samples. Newer GPUs take them for
// heads that are too wide for kernels of their own.

// fitsAmpere says that the kernels take the call.
func (h heads) fitsAmpere(d *Device) bool {
	a, wide := h.c.Attr, h.d%32 == 0 && h.d <= 256
	return d.gpu.major >= 8 && h.c.In[0].DType != dtype.F32 && (wide || h.d%16 == 0 && h.d <= 128) && h.t == h.s &&
		a.Scale > 0 && !a.Mask && h.listShared() <= int64(d.gpu.shared)-listOwn
}

// warpTiling says how the kernels of a file divide the work.
type warpTiling struct {
	unit   unit
	shared int64 // of a block, in bytes
}

// rows of a block.
func (w warpTiling) rows() int64 { return 64 * w.unit.tiles }

// warpTiles is a tiling whose blocks hold whole tiles so often and strips so often.
func (h heads) warpTiles(file string, tiles, keys, whole, strips int64) warpTiling {
	u := unit{file: file, element: h.c.In[0].DType, head: h.d, keys: keys, tiles: tiles, stages: max(1, strips/2), blocks: 2, masks: h.masks(), dropout: h.dropout()}
	return warpTiling{u, h.tileBytes(whole*64*tiles + strips*keys)}
}

// blocksOf is how many blocks with so much shared memory a multiprocessor has room for.
func (d *Device) blocksOf(shared int64) int64 {
	const reserved, own = 1 << 10, 1 << 10 // by the driver, and what kernels declare themselves
	return (int64(d.gpu.shared) + reserved) / (shared + reserved + own)
}

// ampereForward is the tiling of the forward kernel: as many rows as registers allow where there
// is much shared memory, and as many keys at a time as leave room for two blocks.
func (h heads) ampereForward(d *Device) warpTiling {
	const much = 160 << 10
	tiles := int64(1)
	if h.d <= 64 || h.d <= 128 && d.gpu.shared >= much {
		tiles = 2
	}
	w := h.warpTiles("ampere", tiles, 64, 1, 2)
	if narrow := h.warpTiles("ampere", tiles, 32, 1, 2); d.blocksOf(w.shared) < min(2, d.blocksOf(narrow.shared)) {
		w = narrow
	}
	return w
}

// ampereGradient is the tiling of those of the gradient: with two stages unless that leaves no
// room for two blocks.
func (h heads) ampereGradient(d *Device) warpTiling {
	tiles := int64(1)
	if h.d <= 64 {
		tiles = 2
	}
	const keys = 32
	w := h.warpTiles("ampereGrad", tiles, keys, 2, 4)
	if narrow := h.warpTiles("ampereGrad", tiles, keys, 2, 2); d.blocksOf(w.shared) < min(2, d.blocksOf(narrow.shared)) {
		w = narrow
	}
	return w
}

// launchWarps prepares a kernel with a block for each piece of a tile and line. Where documents
// make the tiles there may be fewer than blocks.
func (h heads) launchWarps(d *Device, w warpTiling, name string, lines int64, list arg, args ...arg) (*kernelLaunch, error) {
	tiles := ceilDiv(h.t, tileRows)
	if h.c.Attr.Segments {
		tiles = h.mostTiles()
	}
	args = append(append(args, i64(h.b), list), h.maskArgs(arg{})...)
	return d.grid(w.unit, name, [3]int64{tiles * h.b * lines * (tileRows / w.rows()), 1, 1}, [3]int64{attentionThreads, 1, 1}, w.shared, args...)
}

func (h heads) forwardAmpere(d *Device, w warpTiling) (p program, err error) {
	lists, err := h.tileLists(d, &p, 1)
	if err != nil {
		return p, err
	}
	o := len(h.c.In)
	err = p.add(h.launchWarps(d, w, "attention", h.heads, lists[0], buffer(0), buffer(1), buffer(2), buffer(o), buffer(o+1)))
	return p, err
}

func (h heads) gradientAmpere(d *Device, w warpTiling) (program, error) {
	parts := int64(1) // of a wide head
	if h.d > 128 {
		parts = 2
	}
	n := h.dealt(ceilDiv(h.t, w.rows())*parts, int64(d.gpu.multiprocessors))
	return h.gradientByTiles(d, n, func(name string, list arg, args ...arg) (*kernelLaunch, error) {
		lines := h.heads
		if name == gradKeys {
			lines = h.keys * n * parts
		}
		return h.launchWarps(d, w, name, lines, list, args...)
	})
}
