package dl

import (
	"unsafe"

	_ "github.com/ebitengine/purego" // prepares the runtime for foreign code
)

// block is what the trampoline reads and writes; its layout is fixed by the assembly.
type block struct {
	fn     uintptr
	result uintptr
	args   Args
}

// trampoline is the address of the assembly that calls block.fn by C's convention.
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
