package kernel

import "unsafe"

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

// packStrips makes a packTranspose of any width out of one that does wide or narrow
// columns and a multiple of four k. What is left over is copied plainly.
func packStrips(wide, narrow int, strip packTransposeFunc) packTransposeFunc {
	return func(dst *float32, step int, src *float32, srcStep, k, width int) {
		four := k &^ 3
		for j := 0; j < width; {
			w := min(width-j, wide)
			if w < wide && w >= narrow {
				w = narrow
			}
			done := 0
			if w == wide || w == narrow {
				strip(at(dst, j), step, at(src, j*srcStep), srcStep, four, w)
				done = four
			}
			if done < k {
				packTransposeGo(at(dst, done*step+j), step, at(src, j*srcStep+done), srcStep, k-done, w)
			}
			j += w
		}
	}
}
