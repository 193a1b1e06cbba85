//go:build (linux || darwin) && !(linux && amd64)

package dl

import "github.com/ebitengine/purego"

func call(fn uintptr, args *Args) uintptr {
	r, _, _ := purego.SyscallN(fn, args[:]...)
	return r
}
