package dtype

import "unsafe"

// Widen converts numbers of a 16-bit type, BF16 or F16, to f32; dst is as long as src.
func (t Type) Widen(dst []float32, src []uint16) {
	n := len(dst) &^ (maxLanes - 1)
	if t == BF16 {
		active.widenBF16(dst[:n], src[:n])
		widenBF16(dst[n:], src[n:len(dst)])
		return
	}
	active.widenF16(dst[:n], src[:n])
	widenF16(dst[n:], src[n:len(dst)])
}

// Narrow rounds numbers to a 16-bit type, BF16 or F16, to nearest even; dst is as long as
// src.
func (t Type) Narrow(dst []uint16, src []float32) {
	n := len(dst) &^ (maxLanes - 1)
	if t == BF16 {
		active.narrowBF16(dst[:n], src[:n])
		narrowBF16(dst[n:], src[n:len(dst)])
		return
	}
	active.narrowF16(dst[:n], src[:n])
	narrowF16(dst[n:], src[n:len(dst)])
}

// NarrowNonTemporal is Narrow for much data that is not read again soon. Non-temporal stores
// bypass the caches, which saves reading the lines that are overwritten.
func (t Type) NarrowNonTemporal(dst []uint16, src []float32) {
	head := elementsToLine(dst)
	n := head + (len(dst)-head)&^(maxLanes-1)
	t.Narrow(dst[:head], src[:head])
	if t == BF16 {
		active.nonTemporalBF16(dst[head:n], src[head:n])
	} else {
		active.nonTemporalF16(dst[head:n], src[head:n])
	}
	t.Narrow(dst[n:], src[n:len(dst)])
}

// elementsToLine is how many elements come before the first that is aligned for a
// non-temporal store; all of them where none is.
func elementsToLine(dst []uint16) int {
	const line, size = 2 * maxLanes, 2
	past := uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % line
	if past%size != 0 {
		return len(dst)
	}
	return min(int((line-past)%line/size), len(dst))
}

// path is one implementation of the conversions, portable or for a vector instruction set.
// All give the same bits; a NaN only has to stay one.
type path struct {
	name                            string
	widenBF16, widenF16             func(dst []float32, src []uint16) // of a multiple of maxLanes
	narrowBF16, narrowF16           func(dst []uint16, src []float32)
	nonTemporalBF16, nonTemporalF16 func(dst []uint16, src []float32) // to an address that is a multiple of 2·maxLanes
}

// maxLanes is the largest number of vector lanes of a path.
const maxLanes = 16

// active is the fastest path of this CPU; available lists the slowest first.
var active = available()[len(available())-1]

func portable() path {
	return path{"portable", widenBF16, widenF16, narrowBF16, narrowF16, narrowBF16, narrowF16}
}

func widenBF16(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = FromBF16(v)
	}
}

func widenF16(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = FromF16(v)
	}
}

func narrowBF16(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = ToBF16(v)
	}
}

func narrowF16(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = ToF16(v)
	}
}
