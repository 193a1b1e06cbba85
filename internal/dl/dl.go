// Package dl opens C libraries at run time and calls their functions, without cgo.
// It is the only package that calls foreign code.
//
// A binary that contains it is linked dynamically with the C library of its system
// (purego brings the thread set-up that foreign code expects), although it is built
// with CGO_ENABLED=0 and for any target from any machine.
package dl

import (
	"fmt"
	"unsafe"
)

// Library is an open C library. Libraries stay open until the process ends: their
// threads and handlers do not survive being unloaded.
type Library struct {
	name   string
	handle uintptr
}

// Open opens a library by path, or by a name the system's loader looks up.
func Open(name string) (*Library, error) {
	h, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return &Library{name, h}, nil
}

// Func looks a function up.
func (l *Library) Func(name string) (Func, error) {
	f, err := symbol(l.handle, name)
	if err != nil {
		return 0, fmt.Errorf("%s has no function %s: %w", l.name, name, err)
	}
	return Func(f), nil
}

// Func is a C function whose arguments and result are integers or pointers.
type Func uintptr

// MaxArgs is how many arguments a call can have.
const MaxArgs = 16

// Call calls the function. Pointers are given as uintptr(unsafe.Pointer(p)) in the
// call itself: what they point to stays alive and in place until the call returns.
// A call with more than MaxArgs arguments panics: it is a mistake in the program. Each call allocates; where
// that matters there is With.
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

// Args are prepared arguments. Unused ones do no harm.
type Args [MaxArgs]uintptr

// With calls the function with prepared arguments and allocates nothing. Addresses
// among them must be of memory that does not move: C's, or an object on the heap that
// the caller holds.
func (f Func) With(a *Args) uintptr { return call(uintptr(f), a) }

// Text is the C string at an address, at most limit bytes of it.
func Text(at uintptr, limit int) string {
	if at == 0 {
		return ""
	}
	// The address is of C memory, which no collector moves.
	bytes := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), limit)
	for i := range limit {
		if bytes[i] == 0 {
			return string(bytes[:i])
		}
	}
	return string(bytes)
}
