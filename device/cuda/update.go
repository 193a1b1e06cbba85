package cuda

import (
	"spillway/dtype"
	"spillway/op"
)

// stored numbers the types of moments, and of the copy of an updated weight, as update.cu
// does.
var stored = map[dtype.Type]int64{dtype.Invalid: 0, dtype.F32: 1, dtype.BF16: 2, dtype.F16: 3, dtype.Dyn8: 4, dtype.UDyn8: 5}

// copyArgs are the copy of the weight, behind the other outputs, and its type.
func copyArgs(c op.Call) ([]arg, error) {
	kind, known := stored[c.Attr.To]
	if !known {
		return nil, none("copies of the weight as " + c.Attr.To.String() + " are not handled")
	}
	if kind == 0 {
		return []arg{{}, {}}, nil
	}
	return []arg{buffer(len(c.In) + len(c.Out) - 1), i64(kind)}, nil
}

// forms are the ends of kernels' names by the type of what they keep.
var forms = map[dtype.Type]string{dtype.F32: "", dtype.BF16: "BF16", dtype.F16: "F16", dtype.Dyn8: "8", dtype.UDyn8: "8"}

func adam(d *Device, c op.Call) (program, error) {
	mean, square := c.In[2].DType, c.In[3].DType
	name, attrs := "adam"+forms[mean], []arg{flag(c.Attr.Decoupled)}
	if forms[mean] != forms[square] {
		name, attrs = "adamMixed", append(attrs, i64(stored[mean]), i64(stored[square]))
	}
	return d.updated(c, name, []arg{buffer(0), buffer(1), buffer(2), buffer(3), buffer(4)}, attrs,
		op.ArgRate, op.ArgDecay, op.ArgBeta1, op.ArgBeta2, op.ArgEps, op.ArgBias1, op.ArgBias2)
}

func sgd(d *Device, c op.Call) (program, error) {
	if len(c.In) == 3 {
		return d.updated(c, "sgdBare", []arg{buffer(0), buffer(1), buffer(2)}, nil, op.ArgRate, op.ArgDecay)
	}
	return d.updated(c, "sgd"+forms[c.In[2].DType], []arg{buffer(0), buffer(1), buffer(2), buffer(3)}, []arg{flag(c.Attr.Nesterov)},
		op.ArgRate, op.ArgDecay, op.ArgBeta1, op.ArgBeta2, op.ArgBias1)
}

func lion(d *Device, c op.Call) (program, error) {
	return d.updated(c, "lion"+forms[c.In[2].DType], []arg{buffer(0), buffer(1), buffer(2), buffer(3)}, nil, op.ArgRate, op.ArgDecay, op.ArgBeta1, op.ArgBeta2)
}

// updatedAtOnce is how many elements a block of threads updates at a time: 256 per warp.
const updatedAtOnce = 8 * threads

// updated prepares an update rule: its buffers, the copy of the weight, the number of
// elements, attributes, and numbers of the iteration.
func (d *Device) updated(c op.Call, name string, args, attrs []arg, scalars ...int) (program, error) {
	copied, err := copyArgs(c)
	if err != nil {
		return program{}, err
	}
	n := c.In[0].Shape.Elements()
	args = append(append(append(args, copied...), i64(n)), attrs...)
	for _, s := range scalars {
		args = append(args, iteration(s))
	}
	blocks := max(1, min(parts(n, updatedAtOnce), int64(d.card.multiprocessors)*4))
	return just(d.line(of("update", c.In[1].DType), name, blocks, threads, args...))
}
