package cuda

import (
	"fmt"

	"spillway/op"
)

// Launch is how a kernel that a program brings runs for a call.
type Launch struct {
	Kernel          string // name of a function declared extern "C" __global__ void
	Blocks, Threads int64  // of the grid, and of a block
	Args            []Arg  // its parameters, in order
}

// Arg is a parameter of a kernel.
type Arg struct{ arg }

// Buffer is the address of operand i of the call; its outputs follow its operands.
func Buffer(i int) Arg { return Arg{buffer(i)} }

// Int is a number of the C++ type i64, Float one of the type float.
func Int(n int64) Arg     { return Arg{i64(n)} }
func Float(f float64) Arg { return Arg{f32(f)} }

// Scalar is a number of the iteration, of the type float, by its name in op.Op.Scalars.
func Scalar(kind op.Kind, name string) Arg { return Arg{iteration(kind.Slots(name)[0])} }

// Key and Row are op.Args.Key and op.Args.Row, of the type u64.
func Key() Arg { return Arg{key()} }
func Row() Arg { return Arg{row()} }

// mostThreads is how many threads a block has at most, on every GPU.
const mostThreads = 1024

// Register adds the kernel of an op that a program brings: CUDA C++, compiled for the exact
// GPU when it is first asked for, and how it is launched for a call. kernels/common.h comes
// before the source: there Element is the type of the call's first operand, and wide and
// narrow convert it to float and back. Buffers begin at any element. Call it from an init
// function; it panics where the kind has a kernel already.
func Register(kind op.Kind, source string, launch func(c op.Call) Launch) {
	registerUnaligned(kind, func(d *Device, c op.Call) (p program, err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("how it is launched: %v", r)
			}
		}()
		l := launch(c)
		args := make([]arg, len(l.Args))
		for i, a := range l.Args {
			if n := len(c.In) + len(c.Out); a.from == operand && (a.index < 0 || a.index >= n) {
				return p, fmt.Errorf("parameter %d of its kernel is buffer %d, operands and outputs are %d, counted from 0", i, a.index, n)
			}
			args[i] = a.arg
		}
		if l.Blocks < 1 || l.Threads < 1 || l.Threads > mostThreads {
			return p, fmt.Errorf("it is launched with %d blocks of %d threads; there is at least one of each, and a block has at most %d", l.Blocks, l.Threads, mostThreads)
		}
		return single(d.line(unit{file: string(kind), text: source, element: c.In[0].DType}, l.Kernel, l.Blocks, l.Threads, args...))
	})
}
