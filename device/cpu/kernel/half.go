package kernel

import (
	"unsafe"

	"spillway/dtype"
	"spillway/quant"
)

// half is how weights of a 16-bit type, bf16 or f16, are multiplied as they are stored. For
// many rows they are widened while the panels of the matmul are packed. For few rows, as in
// decoding, reading takes most of the time, and they are transposed and widened in registers.
type half struct {
	of        dtype.Type
	width     int // columns of a stream
	streams   [maxStreamRows + 1]streamsFunc
	transpose packHalfFunc
	// widenRows widens k rows of widenedCols: dst[p*step+j] is src[p*srcStep+j].
	widenRows halfStripFunc
	// The same for interleaved weights: see interleavedFunc, and widening eight columns.
	interleaved  [maxStreamRows + 1]interleavedFunc
	deinterleave func(dst *float32, step int, src *uint16, k int)
	// together widens all columns that lie together, to dst[p*step+j] the first sixteen, and to dst[half+p*step+j-16] the others; k is
	// a multiple of 8. Where it is not nil, up to skinnyM rows are multiplied by such numbers.
	together func(dst *float32, step, half int, src *uint16, k int)
}

// A packHalfFunc is a packTransposeFunc that widens.
type packHalfFunc func(dst *float32, step int, src *uint16, srcStep, k, width int)

// A streamsFunc multiplies four streams at once, since one chain of multiply-adds waits for
// itself: for each s, columns j < width and rows i < h of A,
//
//	sums[s][i*sumStep+j] += Σp a[s][i*aStep+p] · b[s][j*bStep+p]     p < k, in order
//
// k is a multiple of 8. Meanwhile it fetches as many bytes as it reads, from later on, into the
// second-level cache.
type streamsFunc func(k int, s *streams, bStep, aStep, sumStep int, later uintptr)

// streams is where the operands and the sums of a streamsFunc are. The assembly knows its layout.
type streams struct {
	b    [streamsAtOnce]*uint16
	a    [streamsAtOnce]*float32
	sums [streamsAtOnce]*float32
}

const (
	streamsAtOnce = 4
	maxStreamRows = 4
	maxStreamCols = 16
)

// half is the routines of a 16-bit type.
func (r *routines) half(of dtype.Type) *half {
	if of == dtype.BF16 {
		return &r.bf16
	}
	return &r.f16
}

// codeAt is the address of p[i], as at.
func codeAt(p *uint16, i int) *uint16 {
	return (*uint16)(unsafe.Add(unsafe.Pointer(p), i*2))
}

// portableHalf is the plain way.
func portableHalf(of dtype.Type) half {
	h := half{of: of, width: 8}
	for rows := 1; rows <= maxStreamRows; rows++ {
		h.streams[rows] = func(k int, s *streams, bStep, aStep, sumStep int, _ uintptr) {
			for q := range streamsAtOnce {
				for i := range rows {
					h.streamPlainly(k, at(s.a[q], i*aStep), s.b[q], bStep, at(s.sums[q], i*sumStep))
				}
			}
		}
		h.interleaved[rows] = func(k int, a *float32, aStep int, b *uint16, sums *float32) {
			for i := range rows {
				h.multiplyInterleaved(k, at(a, i*aStep), b, at(sums, i*quant.HalfRows))
			}
		}
	}
	h.widenRows, h.transpose, h.deinterleave = h.widenRowsPlainly, h.transposePlainly, h.deinterleavePlainly
	return h
}

// pairAt is where elements p and p+1 of a column of those that lie together begin, p being even.
func (h *half) pairAt(p, j int) int { return min(h.interleavedAt(p, j), h.interleavedAt(p+1, j)) }

// interleavedAt is where element p of column j of those that lie together is among their codes.
func (h *half) interleavedAt(p, j int) int {
	if h.of == dtype.BF16 {
		return p/2*2*quant.HalfRows + 2*j + 1 - p%2
	}
	return p*quant.HalfRows + j
}

func (h *half) multiplyInterleaved(k int, a *float32, b *uint16, sums *float32) {
	for j := range quant.HalfRows {
		var sum float32
		for p := range k {
			sum += *at(a, p) * h.widen(*codeAt(b, h.interleavedAt(p, j)))
		}
		*at(sums, j) = sum
	}
}

// deinterleavePlainly widens eight columns: dst[p*step+j] is element p of column j.
func (h *half) deinterleavePlainly(dst *float32, step int, src *uint16, k int) {
	for p := range k {
		for j := range 8 {
			*at(dst, p*step+j) = h.widen(*codeAt(src, h.interleavedAt(p, j)))
		}
	}
}

func (h *half) streamPlainly(k int, a *float32, b *uint16, bStep int, sums *float32) {
	for j := range h.width {
		sum := *at(sums, j)
		for p := range k {
			sum += *at(a, p) * h.widen(*codeAt(b, j*bStep+p))
		}
		*at(sums, j) = sum
	}
}

func (h *half) widen(code uint16) float32 {
	if h.of == dtype.BF16 {
		return dtype.FromBF16(code)
	}
	return dtype.FromF16(code)
}

func (h *half) transposePlainly(dst *float32, step int, src *uint16, srcStep, k, width int) {
	for j := range width {
		for p, v := range unsafe.Slice(codeAt(src, j*srcStep), k) {
			*at(dst, p*step+j) = h.widen(v)
		}
	}
}

// widenedCols is how many columns widenRows takes.
const widenedCols = 16

func (h *half) widenRowsPlainly(dst *float32, step int, src *uint16, srcStep, k int) {
	for p := range k {
		for j := range widenedCols {
			*at(dst, p*step+j) = h.widen(*codeAt(src, p*srcStep+j))
		}
	}
}

// halfStripFunc is a packHalfFunc of a fixed width and a multiple of eight k.
type halfStripFunc func(dst *float32, step int, src *uint16, srcStep, k int)

// transposeStrips makes a packHalfFunc of any width out of one of a fixed width. What is left
// over is widened plainly.
func (h *half) transposeStrips(wide int, strip halfStripFunc) packHalfFunc {
	return func(dst *float32, step int, src *uint16, srcStep, k, width int) {
		j, eight := 0, k&^7
		for ; j+wide <= width; j += wide {
			strip(at(dst, j), step, codeAt(src, j*srcStep), srcStep, eight)
		}
		if j > 0 && eight < k {
			h.transposePlainly(at(dst, eight*step), step, codeAt(src, eight), srcStep, k-eight, j)
		}
		if j < width {
			h.transposePlainly(at(dst, j), step, codeAt(src, j*srcStep), srcStep, k, width-j)
		}
	}
}

// deinterleaveEights is deinterleavePlainly, out of a function that takes a multiple of eight k.
func (h *half) deinterleaveEights(eights func(dst *float32, step int, src *uint16, k int)) func(dst *float32, step int, src *uint16, k int) {
	return func(dst *float32, step int, src *uint16, k int) {
		eight := k &^ 7
		eights(dst, step, src, eight)
		if k > eight { // a pointer behind the end of memory is none
			h.deinterleavePlainly(at(dst, eight*step), step, codeAt(src, quant.HalfRows*eight), k-eight)
		}
	}
}
