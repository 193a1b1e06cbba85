package cpu

import (
	"fmt"
	"slices"

	"spillway/device"
	"spillway/device/cpu/kernel"
	"spillway/dtype"
	"spillway/op"
)

// Maker prepares a call whose types were checked: it gives the program that launches
// run. workers is how many goroutines work at once.
type Maker func(c op.Call, workers int) Program

// entry is the kernel of a kind.
type entry struct {
	make Maker
	// native says that the kernel reads and writes 16-bit operands of a call itself;
	// other calls on them are computed in f32, see widened.
	native func(c op.Call) bool
	// foreign is a kernel of another package, which is watched.
	foreign bool
}

// entries holds the kernels there are. Each kernel's file registers its own.
var entries = map[op.Kind]entry{}

// Register adds the kernel of a kind, which works in f32. Call it from an init function.
// It panics where the kind has a kernel already.
func Register(kind op.Kind, make Maker) {
	register(kind, make, func(c op.Call) bool { return !hasNarrow(c.In) && !hasNarrow(c.Out) }, isForeign(1))
}

// RegisterNative is Register for a kernel that takes 16-bit operands as they are, where
// native says so; nil for always.
func RegisterNative(kind op.Kind, make Maker, native func(c op.Call) bool) {
	register(kind, make, native, isForeign(1))
}

func register(kind op.Kind, make Maker, native func(c op.Call) bool, foreign bool) {
	if _, taken := entries[kind]; taken {
		panic(fmt.Sprintf("cpu: a second kernel for %s", kind))
	}
	if native == nil {
		native = func(op.Call) bool { return true }
	}
	entries[kind] = entry{make, native, foreign}
}

// prepare makes the program of a call, or says why there is none.
func prepare(c op.Call, workers int) (p Program, reason string) {
	e, known := entries[c.Kind]
	if !known && op.FormulaOf(c.Kind) != nil {
		e, known = entry{formula, func(op.Call) bool { return true }, false}, true
	}
	if !known {
		return p, "no kernel is registered for the kind"
	}
	for _, t := range slices.Concat(c.In, c.Out) {
		if !t.DType.Block() && !slices.Contains(types, t.DType) {
			return p, fmt.Sprintf("operands of type %v are not handled", t.DType)
		}
	}
	switch {
	case c.Empty():
		return Program{Run: func(*kernel.Pool, *device.Launch) {}}, ""
	case e.native(c):
		return e.made(c, workers)
	}
	return widened(c, workers)
}

// types of plain operands there are. Arithmetic is in f32; f64 holds sums of squares.
// Block types are operands of the ops that read them, by the ops' own rules.
var types = []dtype.Type{dtype.F32, dtype.I32, dtype.F64, dtype.BF16, dtype.F16}

func narrow(t dtype.Type) bool { return t == dtype.BF16 || t == dtype.F16 }

func hasNarrow(types []op.Type) bool {
	return slices.ContainsFunc(types, func(t op.Type) bool { return narrow(t.DType) })
}
