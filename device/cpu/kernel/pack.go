package kernel

import "unsafe"

// A packFunc fills k rows of a panel, dstStep apart, with width elements each:
//
//	packCopy:       dst[p*dstStep+j] = src[p*srcStep+j]     p < k, j < width
//	packTranspose:  dst[p*dstStep+j] = src[j*srcStep+p]
//
// width is at most nr. Nothing outside those elements is read or written.
type packFunc func(dst *float32, dstStep int, src *float32, srcStep int, k, width int)

func packCopyGo(dst *float32, dstStep int, src *float32, srcStep int, k, width int) {
	for p := range k {
		copy(unsafe.Slice(at(dst, p*dstStep), width), unsafe.Slice(at(src, p*srcStep), width))
	}
}

func packTransposeGo(dst *float32, dstStep int, src *float32, srcStep int, k, width int) {
	for j := range width {
		for p, v := range unsafe.Slice(at(src, j*srcStep), k) {
			*at(dst, p*dstStep+j) = v
		}
	}
}

// packStrips makes a packTranspose of any width out of one that does wide or narrow
// columns and a multiple of four k. What is left over is copied plainly.
func packStrips(wide, narrow int, strip packFunc) packFunc {
	return func(dst *float32, dstStep int, src *float32, srcStep int, k, width int) {
		four := k &^ 3
		for j := 0; j < width; {
			w := min(width-j, wide)
			if w < wide && w >= narrow {
				w = narrow
			}
			done := 0
			if w == wide || w == narrow {
				strip(at(dst, j), dstStep, at(src, j*srcStep), srcStep, four, w)
				done = four
			}
			if done < k {
				packTransposeGo(at(dst, done*dstStep+j), dstStep, at(src, j*srcStep+done), srcStep, k-done, w)
			}
			j += w
		}
	}
}
