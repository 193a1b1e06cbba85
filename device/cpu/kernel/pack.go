package kernel

import (
	"unsafe"

	"spillway/quant"
)

// Panels are what a tile reads: k rows of step elements, one panel behind the other.
//
// A packTranspose fills the first width columns of one panel from memory that runs
// along it; a packCopy fills panels side by side from memory that runs across them:
//
//	transpose:  dst[p*step+j]       = src[j*srcStep+p]             p < k, j < width
//	copy:       dst[(q*k+p)*step+j] = src[p*srcStep+q*step+j]      q < panels
//
// Nothing outside those elements is read or written.
type (
	packTransposeFunc func(dst *float32, step int, src *float32, srcStep, k, width int)
	packCopyFunc      func(dst *float32, step int, src *float32, srcStep, k, width, panels int)
)

func packCopyGo(dst *float32, step int, src *float32, srcStep, k, width, panels int) {
	for q := range panels {
		for p := range k {
			copy(unsafe.Slice(at(dst, (q*k+p)*step), width), unsafe.Slice(at(src, p*srcStep+q*step), width))
		}
	}
}

func packTransposeGo(dst *float32, step int, src *float32, srcStep, k, width int) {
	for j := range width {
		for p, v := range unsafe.Slice(at(src, j*srcStep), k) {
			*at(dst, p*step+j) = v
		}
	}
}

// stripFunc is a packTranspose of a fixed width and a multiple of four k.
type stripFunc func(dst *float32, step int, src *float32, srcStep, k int)

// packStrips makes a packTranspose of any width out of one of a fixed width. What is
// left over is copied plainly.
func packStrips(wide int, strip stripFunc) packTransposeFunc {
	return func(dst *float32, step int, src *float32, srcStep, k, width int) {
		j, four := 0, k&^3
		for ; j+wide <= width; j += wide {
			strip(at(dst, j), step, at(src, j*srcStep), srcStep, four)
		}
		if j > 0 && four < k {
			packTransposeGo(at(dst, four*step), step, at(src, four), srcStep, k-four, j)
		}
		if j < width {
			packTransposeGo(at(dst, j), step, at(src, j*srcStep), srcStep, k, width-j)
		}
	}
}

// pack fills panels of kc rows of step elements: n elements from `first` on across
// them, from p0 on along them. along says that memory runs along the panels, so that
// it must be transposed.
func (m *Matrix) pack(r *routines, panels []float32, step, first, n, p0, kc int, along bool) {
	if m.Patches != nil {
		m.Patches.pack(r, panels, step, first, n, p0, kc)
		return
	}
	if m.isCompressed() {
		m.packCompressed(r, panels, step, first, n, p0, kc, false)
		return
	}
	if m.narrow() {
		m.packHalf(r.half(m.Type), panels, step, first, n, p0, kc, along)
		return
	}
	if along {
		for i := 0; i < n; i += step {
			r.packTranspose(&panels[i*kc], step, &m.Data[(first+i)*m.Step+p0], m.Step, kc, min(step, n-i))
		}
		return
	}
	whole := n / step
	together := ceil(copied, step)
	for q := 0; q < whole; q += together {
		r.packCopy(&panels[q*step*kc], step, &m.Data[p0*m.Step+first+q*step], m.Step, kc, step, min(together, whole-q))
	}
	if i := whole * step; i < n {
		r.packCopy(&panels[i*kc], step, &m.Data[p0*m.Step+first+i], m.Step, kc, n-i, 1)
	}
}

// packB packs columns of B.
func (g *Gemm) packB(panels []float32, step, first, n, p0, kc int) {
	if g.B.words {
		g.B.packWords(g.path, panels, step, first, n, p0, kc, g.elements, g.B.Transposed)
		return
	}
	g.B.pack(g.path, panels, step, first, n, p0, kc, g.B.Transposed)
}

// copied is how many elements of a row go to panels side by side. The panels of a wide block are a
// power of two apart, so that a first-level cache has room for the same line of few of them.
const copied = 64

// packHalf is pack of a 16-bit type, widened.
func (m *Matrix) packHalf(h *half, panels []float32, step, first, n, p0, kc int, along bool) {
	if m.Interleaved {
		m.deinterleave(h, panels, step, first, n, p0, kc)
		return
	}
	for i := 0; i < n && along; i += step {
		h.transpose(&panels[i*kc], step, &m.Codes[(first+i)*m.Step+p0], m.Step, kc, min(step, n-i))
	}
	for i := 0; i < n && !along; i += step {
		w, j := min(step, n-i), 0
		for ; j+widenedCols <= w; j += widenedCols {
			h.widenRows(&panels[i*kc+j], step, &m.Codes[p0*m.Step+first+i+j], m.Step, kc)
		}
		for p := 0; p < kc && j < w; p++ {
			m.Type.Widen(panels[i*kc+p*step+j:][:w-j], m.Codes[(p0+p)*m.Step+first+i+j:][:w-j])
		}
	}
}

// deinterleave is packHalf of interleaved columns, eight at a time; where a panel has fewer, one
// by one.
func (m *Matrix) deinterleave(h *half, panels []float32, step, first, n, p0, kc int) {
	const together = quant.HalfRows
	for i := 0; i < n; {
		panel, col := &panels[i/step*step*kc+i%step], first+i
		from := m.Codes[col/together*together*m.Step:]
		if most := min(step-i%step, n-i); col%8 == 0 && most >= 8 && p0%2 == 0 {
			h.deinterleave(panel, step, &from[h.pairAt(p0, col%together)], kc)
			i += 8
			continue
		}
		for p := range kc {
			*at(panel, p*step) = h.widen(from[h.interleavedAt(p0+p, col%together)])
		}
		i++
	}
}

// fetchDeep is how many parts the depth of a slab is fetched in, where memory runs across it.
const fetchDeep = 16

// fetchParts is how many tiles it takes to fetch n rows or columns of a slab. along says
// that memory runs along the slab.
func fetchParts(n int, along bool) int {
	if along {
		return ceil(n, 2)
	}
	return fetchDeep * ceil(n, 32)
}

// fetch is one of these parts of the rows or columns from first on: two of them over the
// whole depth of the slab, or 32 of them over a sixteenth of its depth.
func (m *Matrix) fetch(first, p0, kc, part int, along bool) fetch {
	if along {
		return fetch{&m.Data[(first+2*part)*m.Step+p0], m.Step, 16}
	}
	return fetch{&m.Data[(p0+part%fetchDeep*(kc/fetchDeep))*m.Step+first+part/fetchDeep*32], 16, m.Step}
}
