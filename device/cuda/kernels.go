package cuda

import (
	"fmt"

	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/op"
)

// maker prepares a call whose types were checked.
type maker func(d *Device, c op.Call) (program, error)

// entry is the kernel of a kind.
type entry struct {
	make maker
	// unaligned: operands may begin at any element, because the kernel runs on parts of
	// slabs. Other kernels load vectorBytes at once.
	unaligned bool
}

// entries holds the kernels there are. Each kernel's file registers its own.
var entries = map[op.Kind]entry{}

func register(kind op.Kind, make maker) { add(kind, entry{make: make}) }

func registerUnaligned(kind op.Kind, make maker) { add(kind, entry{make: make, unaligned: true}) }

func add(kind op.Kind, e entry) {
	if _, taken := entries[kind]; taken {
		panic(fmt.Sprintf("cuda: a second kernel for %s", kind))
	}
	entries[kind] = e
}

// entryOf is the kernel of a kind: its own, or one that is made from its formula.
func entryOf(kind op.Kind) (entry, bool) {
	e, known := entries[kind]
	if !known && op.FormulaOf(kind) != nil {
		return entry{make: formula, unaligned: true}, true
	}
	return e, known
}

// unsupported is the reason why there is no kernel for a call.
type unsupported string

func (n unsupported) Error() string { return string(n) }

// prepare makes the program of a call.
func (d *Device) prepare(c op.Call) (program, error) {
	e, known := entryOf(c.Kind)
	if !known {
		return program{}, unsupported("no kernel is registered for the kind")
	}
	for _, t := range c.In {
		if err := checkType(c, t.DType); err != nil {
			return program{}, err
		}
	}
	if c.Empty() {
		return program{}, nil
	}
	return e.make(d, c)
}

// checkType refuses element types no kernel works on.
func checkType(c op.Call, t dtype.Type) error {
	if t.Block() {
		return nil // the rule of the op says where they may be
	}
	switch t {
	case dtype.F32, dtype.BF16, dtype.F16, dtype.I32:
		return nil
	case dtype.F64:
		if c.Kind == op.ClipScale {
			return nil
		}
	}
	return unsupported(fmt.Sprintf("operands of type %v are not handled", t))
}

// same refuses operands that are not all of one element type.
func same(types ...op.Type) error {
	for _, t := range types {
		if t.DType != types[0].DType {
			return unsupported(fmt.Sprintf("operands of types %v and %v together are not handled", types[0].DType, t.DType))
		}
	}
	return nil
}

// unitFor is the unit of a file for an element type.
func unitFor(file string, t dtype.Type) unit { return unit{file: file, element: t} }

// line prepares a launch of a one-dimensional grid.
func (d *Device) line(u unit, name string, blocks, threads int64, args ...arg) (*kernelLaunch, error) {
	return d.grid(u, name, [3]int64{blocks, 1, 1}, [3]int64{threads, 1, 1}, 0, args...)
}

// grid prepares a launch.
func (d *Device) grid(u unit, name string, grid, block [3]int64, shared int64, args ...arg) (*kernelLaunch, error) {
	f, err := d.function(u, name, shared)
	if err != nil {
		return nil, err
	}
	if len(args) > driver.MaxParams {
		return nil, fmt.Errorf("kernel %s has %d parameters, of which there are at most %d", name, len(args), driver.MaxParams)
	}
	if grid[0] >= 1<<31 || grid[1] >= 1<<16 || grid[2] >= 1<<16 {
		return nil, unsupported(fmt.Sprintf("a grid of %v blocks is larger than the GPU takes", grid))
	}
	k := &kernelLaunch{function: f, shared: uint32(shared), args: args}
	for i := range 3 {
		k.grid[i], k.block[i] = uint32(grid[i]), uint32(block[i])
	}
	return k, nil
}

// single is a program of one launch.
func single(k *kernelLaunch, err error) (program, error) {
	return program{actions: []action{k}}, err
}

// ceilDiv is how many pieces of a size n takes.
func ceilDiv(n, size int64) int64 { return (n + size - 1) / size }

// elementsPerLoad is how many elements a thread loads at once.
func elementsPerLoad(t dtype.Type) int64 { return vectorBytes / t.Bytes(1) }

// strideBlocks is the grid of kernels that walk over n elements in steps of the grid: enough
// blocks to fill the GPU, fewer for less.
func (d *Device) strideBlocks(n int64) int64 {
	return max(1, min(ceilDiv(n, threads), int64(d.gpu.multiprocessors)*8))
}

// threads of a block where nothing else decides.
const threads = 256

// aligned rounds scratch memory up so that what follows is aligned.
func aligned(bytes int64) int64 { return ceilDiv(bytes, alignment) * alignment }
