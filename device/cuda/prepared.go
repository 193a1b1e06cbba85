package cuda

import (
	"cmp"
	"fmt"
	"math"

	"spillway/device"
	"spillway/device/cuda/driver"
	"spillway/op"
)

// program is a prepared call: the scratch memory it needs, in bytes, and the launches, in
// order.
type program struct {
	workspace int64
	actions   []action
}

// add appends a launch, or returns the error of preparing it.
func (p *program) add(k *kernelLaunch, err error) error {
	p.actions = append(p.actions, k)
	return err
}

// action is one launch of a program: a kernel of ours or a call of a library.
type action interface {
	run(q *queue, l *device.Launch) error
}

// preparedKernel is a call ready to run.
type preparedKernel struct {
	device  *Device
	call    op.Call
	program program
	// unaligned: buffers may begin at any element, see entry.
	unaligned bool
}

// Workspace is the scratch memory a launch needs, in bytes.
func (t *preparedKernel) Workspace() int64 { return t.program.workspace }

// check refuses a launch whose buffers do not fit the call.
func (t *preparedKernel) check(l *device.Launch) error {
	if t.unaligned {
		return l.Check(t.call, t.program.workspace, func(b device.Buffer, t op.Type) error { return cmp.Or(b.CheckAligned(t.Align()), onGPU(b)) })
	}
	return l.Check(t.call, t.program.workspace, func(b device.Buffer, _ op.Type) error { return cmp.Or(b.CheckAligned(vectorBytes), onGPU(b)) })
}

// vectorBytes is what a thread loads at once.
const vectorBytes = 16

// kernelLaunch is a kernel of ours with its parameters.
type kernelLaunch struct {
	function *function
	grid     [3]uint32
	block    [3]uint32
	shared   uint32
	args     []arg
	// early: the kernel calls awaitPrevious (kernels/decode.h), so it may begin while the one
	// before it still runs.
	early bool
	// writesWeight: it writes what kernels that begin early read before they wait, so the next one begins once it has ended.
	writesWeight bool
	// cluster is how many blocks share a cluster; 0 where there are none.
	cluster uint32
}

func (k *kernelLaunch) run(q *queue, l *device.Launch) error {
	k.fill(q, l)
	q.launch.Early = k.early && q.follows && q.device.gpu.major >= 9 && !q.device.plainly.launches
	q.follows = !k.writesWeight
	if err := q.device.lib.CUDA.Launch(&q.launch); err != nil {
		return fmt.Errorf("kernel %s: %w", k.function.name, err)
	}
	if q.capturing != nil {
		return q.capturing.recordLaunch(q, k, l)
	}
	return nil
}

// fill writes the launch and its parameters into memory of the queue.
func (k *kernelLaunch) fill(q *queue, l *device.Launch) {
	for i, a := range k.args {
		if q.slots[i] = a.value(l); a.from == queueNumber {
			q.slots[i] = uint64(q.number)
		}
	}
	q.launch.Function, q.launch.Grid, q.launch.Block, q.launch.Shared, q.launch.Cluster = k.function.handle, k.grid, k.block, k.shared, k.cluster
}

// arg is a parameter of a launch: a number, or where to find one.
type arg struct {
	from  source
	index int
	bits  uint64 // the number, or an offset in bytes
}

type source uint8

const (
	number source = iota
	operand
	scratch
	queueNumber
	randomKey // this and the rest are of the iteration
	firstRow
	scalar
)

// changes reports whether the parameter is a number of the iteration.
func (a arg) changes() bool { return a.from >= randomKey }

// value of the parameter, in the lowest bytes.
func (a arg) value(l *device.Launch) uint64 {
	switch a.from {
	case operand:
		return uint64(pointer(l.Buffers[a.index])) + a.bits
	case scratch:
		return uint64(pointer(l.Workspace)) + a.bits
	}
	if a.from == number || a.from == queueNumber || l.Args == nil {
		return a.bits
	}
	switch a.from {
	case randomKey:
		return l.Args.Key
	case firstRow:
		return l.Args.Row
	}
	return uint64(math.Float32bits(l.Args.Scalars[a.index]))
}

// pointer of a buffer that was checked.
func pointer(b device.Buffer) driver.Pointer {
	m, ours := b.Memory.(*memory)
	if !ours {
		return 0
	}
	return m.at + driver.Pointer(b.Offset)
}

// buffer i of the launch: operands, then outputs.
func buffer(i int) arg { return arg{from: operand, index: i} }

// bufferAt is buffer i from an offset in bytes on.
func bufferAt(i int, offset int64) arg { return arg{from: operand, index: i, bits: uint64(offset)} }

// scratchAt is the workspace from an offset in bytes on.
func scratchAt(offset int64) arg { return arg{from: scratch, bits: uint64(offset)} }

// ofQueue is the number of the queue that runs the launch, below maxQueues: kernels with
// counters of their own have some for each, since queues run at the same time.
func ofQueue() arg { return arg{from: queueNumber} }

// i64, f32 and flag are numbers.
func i64(n int64) arg   { return arg{bits: uint64(n)} }
func f32(f float64) arg { return arg{bits: uint64(math.Float32bits(float32(f)))} }
func flag(b bool) arg {
	if b {
		return arg{bits: 1}
	}
	return arg{}
}

// key, row and iteration are numbers of the iteration.
func key() arg            { return arg{from: randomKey} }
func row() arg            { return arg{from: firstRow} }
func iteration(i int) arg { return arg{from: scalar, index: i} }

// fill sets the bytes of an output.
type fill struct {
	at    arg
	bytes int64
}

func (f *fill) run(q *queue, l *device.Launch) error {
	return q.device.lib.CUDA.Fill(driver.Pointer(f.at.value(l)), 0, f.bytes, q.stream)
}
