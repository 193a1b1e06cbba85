package dl

import (
	"unsafe"

	_ "github.com/ebitengine/purego" // prepares the runtime for C code
)

// block is the argument of the trampoline; the assembly relies on its layout.
type block struct {
	fn     uintptr
	result uintptr
	args   Args
}

// trampoline is the address of the assembly that calls block.fn with the C calling
// convention.
var trampoline uintptr

// cgocall runs a C function on a system stack. Go's own cgo calls go through it too;
// linking to it keeps a call at about 80 ns and without allocation.
//
//go:noescape
//go:linkname cgocall runtime.cgocall
func cgocall(fn uintptr, arg unsafe.Pointer) int32

func call(fn uintptr, args *Args) uintptr {
	b := block{fn: fn, args: *args}
	cgocall(trampoline, unsafe.Pointer(&b))
	return b.result
}
