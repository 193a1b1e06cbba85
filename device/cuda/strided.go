package cuda

import (
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/op"
	"spillway/shape"
)

func init() {
	for _, kind := range []op.Kind{op.Reshape, op.Permute, op.Expand, op.Slice} {
		register(kind, moved)
	}
	register(op.Pad, padded)
	register(op.Binary, paired)
	register(op.Compare, paired)
	register(op.BinaryGrad, pairedGrad)
	register(op.Gather, gather)
	register(op.GatherGrad, gatherGrad)
	register(op.ScatterReduce, scatterReduce)
	register(op.ArgSort, argSort)
}

// mostDims is how many dimensions a walk of kernels/strided.cu has.
const mostDims = 8

// walkArgs are the sizes of a walk and the strides of two of its tensors.
func walkArgs(w shape.Walk, x, y int) []arg {
	sizes := func(list []int64, none int64) (args []arg) {
		for range mostDims - len(list) {
			args = append(args, i64(none))
		}
		for _, n := range list {
			args = append(args, i64(n))
		}
		return args
	}
	return append(append(sizes(w.Dims, 1), sizes(w.Strides[x], 0)...), sizes(w.Strides[y], 0)...)
}

// bySize is the kernel of a name for elements of a type's size.
func bySize(name string, t dtype.Type) string { return fmt.Sprint(name, t.Bytes(1)) }

// plainUnit is the unit of a file for ops that move elements whatever their type.
func plainUnit(file string, t dtype.Type) unit {
	if t.Bytes(1) == 4 {
		t = dtype.F32
	}
	return unitFor(file, t)
}

func moved(d *Device, c op.Call) (program, error) {
	w, from, to := c.CopyWalk()
	t := c.In[0].DType
	return single(d.move(t, w, bufferAt(0, t.Bytes(from)), bufferAt(1, t.Bytes(to)), from, to))
}

// move copies elements of a type along a walk: 16 bytes at once where they lie together on both sides. The
// places where it begins count elements of the tensors.
func (d *Device) move(t dtype.Type, w shape.Walk, from, to arg, starts ...int64) (*kernelLaunch, error) {
	name, lane := bySize("move", t), elementsPerLoad(t)
	if together(w, lane, starts) {
		last := len(w.Dims) - 1
		w = shape.Walk{Dims: slices.Clone(w.Dims), Strides: [][]int64{slices.Clone(w.Strides[0]), slices.Clone(w.Strides[1])}}
		w.Dims[last] /= lane
		for _, strides := range w.Strides {
			for i := range last {
				strides[i] /= lane
			}
		}
		name = "move16"
	}
	if samples, ok := planes(w, lane, starts); ok {
		n := w.Dims.Elements() / samples / 3 / lane
		return d.line(plainUnit("strided", t), bySize("interleave", t), d.strideBlocks(samples*n), threads, from, to, i64(samples), i64(n))
	}
	n := w.Dims.Elements()
	return d.line(plainUnit("strided", t), name, d.strideBlocks(n), threads, append([]arg{from, to, i64(n)}, walkArgs(w, 0, 1)...)...)
}

// planes says that a walk makes places of three elements out of three planes, and of how many samples: images as files have them,
// which become channels last.
func planes(w shape.Walk, lane int64, starts []int64) (samples int64, ok bool) {
	last := len(w.Dims) - 1
	if last < 1 || last > 2 || w.Dims[last] != 3 {
		return 0, false
	}
	n := w.Dims[last-1]
	whole := shape.Walk{Dims: shape.Shape{1, n, 3}, Strides: [][]int64{{3 * n, 1, n}, {3 * n, 3, 1}}}
	if last == 2 {
		whole.Dims[0] = w.Dims[0]
	}
	for i := range w.Strides {
		if !slices.Equal(w.Strides[i], whole.Strides[i][2-last:]) {
			return 0, false
		}
	}
	return whole.Dims[0], n%lane == 0 && !slices.ContainsFunc(starts, func(at int64) bool { return at%lane != 0 })
}

// together says that a walk over two tensors goes over runs of so many neighbours, which begin at multiples of
// that.
func together(w shape.Walk, lane int64, starts []int64) bool {
	last := len(w.Dims) - 1
	if last < 0 || w.Dims[last]%lane != 0 || w.Strides[0][last] != 1 || w.Strides[1][last] != 1 {
		return false
	}
	odd := func(n int64) bool { return n%lane != 0 }
	return !slices.ContainsFunc(slices.Concat(starts, w.Strides[0][:last], w.Strides[1][:last]), odd)
}

func padded(d *Device, c op.Call) (program, error) {
	t, n := c.In[0].DType, c.Out[0].Shape.Elements()
	_, count, _ := c.In[0].Shape.Around(c.Attr.Axis, 1)
	outer, all, inner := c.Out[0].Shape.Around(c.Attr.Axis, 1)
	name := bySize("pad", t)
	if lane := elementsPerLoad(t); inner%lane == 0 {
		name, inner, n = "pad16", inner/lane, n/lane
	}
	return single(d.line(plainUnit("strided", t), name, d.strideBlocks(n), threads,
		buffer(0), buffer(1), i64(outer), i64(all), i64(inner), i64(count), i64(c.Attr.Start), i64(max(c.Attr.Step, 1))))
}

func paired(d *Device, c op.Call) (program, error) {
	n := c.Out[0].Shape.Elements()
	args := append([]arg{buffer(0), buffer(1), buffer(2), i64(n), i64(int64(c.Attr.Func2))}, walkArgs(c.BroadcastWalk(), 0, 1)...)
	return single(d.line(unitFor("strided", c.In[0].DType), "binary", d.strideBlocks(n), threads, args...))
}

func pairedGrad(d *Device, c op.Call) (program, error) {
	n, f := c.Out[0].Shape.Elements(), int64(c.Attr.Func2)
	if c.Attr.Second {
		f = -f
	}
	args := append([]arg{buffer(0), buffer(1), buffer(2), buffer(3), i64(n), i64(f)}, walkArgs(c.BroadcastWalk(), 0, 1)...)
	return single(d.line(unitFor("strided", c.In[0].DType), "binaryGrad", d.strideBlocks(n), threads, args...))
}

// plainFunction is a unary function that elementwise.cu has no kernel for, or its gradient.
func plainFunction(d *Device, c op.Call) (program, error) {
	n := c.Out[0].Shape.Elements()
	name, args := "function", []arg{buffer(0), buffer(1)}
	if c.Kind == op.UnaryGrad {
		name, args = "functionGrad", append(args, buffer(2))
	}
	args = append(args, i64(n), i64(int64(c.Attr.Func)), f32(c.Attr.Alpha), f32(c.Attr.Beta))
	return single(d.line(unitFor("strided", c.In[0].DType), name, d.strideBlocks(n), threads, args...))
}

func gather(d *Device, c op.Call) (program, error) {
	total := c.Out[0].Shape.Elements()
	_, n, _ := c.In[0].Shape.Around(c.Attr.Axis, 1)
	_, m, inner := c.In[1].Shape.Around(c.Attr.Axis, 1)
	return single(d.line(unitFor("strided", c.In[0].DType), "gather", d.strideBlocks(total), threads,
		buffer(0), buffer(1), buffer(2), i64(total), i64(n), i64(m), i64(inner)))
}

func gatherGrad(d *Device, c op.Call) (program, error) {
	outer, m, inner := c.In[0].Shape.Around(c.Attr.Axis, 1)
	return single(d.line(unitFor("strided", c.In[1].DType), "gatherGrad", d.strideBlocks(outer*inner), threads,
		buffer(0), buffer(1), buffer(2), i64(outer*inner), i64(c.Attr.Length), i64(m), i64(inner)))
}

func scatterReduce(d *Device, c op.Call) (program, error) {
	_, n, _ := c.In[0].Shape.Around(c.Attr.Axis, 1)
	outer, m, inner := c.In[1].Shape.Around(c.Attr.Axis, 1)
	return single(d.line(unitFor("strided", c.In[0].DType), "scatterReduce", d.strideBlocks(outer*inner), threads,
		buffer(0), buffer(1), buffer(2), buffer(3), i64(outer*inner), i64(n), i64(m), i64(inner), flag(c.Attr.Reduction == op.ReduceMin)))
}

func argSort(d *Device, c op.Call) (program, error) {
	n := c.In[0].Shape.Elements()
	return single(d.line(unitFor("strided", c.In[0].DType), "argSort", d.strideBlocks(n), threads, buffer(0), buffer(1), i64(n), i64(c.In[0].Shape.Last()), flag(c.Attr.Inverse)))
}
