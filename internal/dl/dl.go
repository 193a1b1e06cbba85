// Package dl opens C libraries at run time and calls their functions, without cgo.
// It is the only package that calls C code.
//
// A binary with this package is linked dynamically with the C library of its system,
// because purego sets up threads as C code expects. It is still built with
// CGO_ENABLED=0, for any target on any machine.
package dl

import (
	"fmt"
	"unsafe"
)

// Library is an open C library. It stays open until the process ends, because its threads
// and handlers would not survive unloading.
type Library struct {
	name   string
	handle uintptr
}

// Open opens a library by path, or by a name that the system's loader looks up.
func Open(name string) (*Library, error) {
	h, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return &Library{name, h}, nil
}

// Func looks up a function.
func (l *Library) Func(name string) (Func, error) {
	f, err := symbol(l.handle, name)
	if err != nil {
		return 0, fmt.Errorf("%s has no function %s: %w", l.name, name, err)
	}
	return Func(f), nil
}

// Func is a C function whose arguments and result are integers or pointers.
type Func uintptr

// MaxArgs is the largest number of arguments of a call.
const MaxArgs = 16

// Call calls the function. Pass pointers as uintptr(unsafe.Pointer(p)) in the call
// expression: what they point to then stays alive and in place until the call returns.
// More than MaxArgs arguments are a programming error and panic. Each call allocates; With
// does not.
//
//go:uintptrescapes
func (f Func) Call(args ...uintptr) uintptr {
	if len(args) > MaxArgs {
		panic(fmt.Sprintf("dl: a call with %d arguments, at most %d are possible", len(args), MaxArgs))
	}
	var a Args
	copy(a[:], args)
	return call(uintptr(f), &a)
}

// Args are prepared arguments. Unused ones are ignored.
type Args [MaxArgs]uintptr

// With calls the function with prepared arguments and does not allocate. Pointers among
// them must point to memory that does not move: C memory, or a heap object that the
// caller references.
func (f Func) With(a *Args) uintptr { return call(uintptr(f), a) }

// Text returns the C string at an address, at most limit bytes of it.
func Text(at uintptr, limit int) string {
	if at == 0 {
		return ""
	}
	// The garbage collector does not move C memory.
	bytes := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), limit)
	for i := range limit {
		if bytes[i] == 0 {
			return string(bytes[:i])
		}
	}
	return string(bytes)
}
