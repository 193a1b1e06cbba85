package kernel

import "unsafe"

// CopyNonTemporal copies much data that is not read again soon; nil stands for zeros. Non-temporal stores bypass the caches, which
// saves reading the lines that are overwritten. Lines that are not written whole are copied as usual. Other cores see what was
// written once the job has ended, as ever: counting its last piece orders these stores too.
func CopyNonTemporal(dst, src []float32) {
	aligned := uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%(4*lineFloats) == 0
	switch whole := len(dst)%lineFloats == 0; {
	case len(dst) == 0:
	case src == nil && active.nonTemporal != nil && aligned && whole:
		active.nonTemporal(&dst[0], nil, len(dst))
	case src == nil:
		clear(dst)
	case active.nonTemporal != nil && aligned && whole:
		active.nonTemporal(&dst[0], &src[:len(dst)][0], len(dst))
	default:
		copy(dst, src[:len(dst)])
	}
}
