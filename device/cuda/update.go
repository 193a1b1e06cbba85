package cuda

import (
	"spillway/dtype"
	"spillway/op"
)

// copies numbers the types of the copy of an updated weight, as update.cu does.
var copies = map[dtype.Type]int64{dtype.Invalid: 0, dtype.F32: 1, dtype.BF16: 2, dtype.F16: 3}

// copyArgs are the copy of the weight, behind the other outputs, and its type.
func copyArgs(c op.Call) ([]arg, error) {
	kind, known := copies[c.Attr.To]
	if !known {
		return nil, none("copies of the weight as " + c.Attr.To.String() + " are not handled")
	}
	if kind == 0 {
		return []arg{{}, {}}, nil
	}
	return []arg{buffer(len(c.In) + len(c.Out) - 1), i64(kind)}, nil
}

func adam(d *Device, c op.Call) (program, error) {
	extra, err := copyArgs(c)
	if err != nil {
		return program{}, err
	}
	args := append([]arg{buffer(0), buffer(1), buffer(2), buffer(3), buffer(4)}, extra...)
	return d.updated(c, "adam", append(args, i64(c.In[0].Shape.Elements()), flag(c.Attr.Decoupled)),
		op.ArgRate, op.ArgDecay, op.ArgBeta1, op.ArgBeta2, op.ArgEps, op.ArgBias1, op.ArgBias2)
}

func sgd(d *Device, c op.Call) (program, error) {
	extra, err := copyArgs(c)
	if err != nil {
		return program{}, err
	}
	momentum, clip := arg{}, buffer(len(c.In)-1)
	if len(c.In) == 4 {
		momentum = buffer(2)
	}
	args := append([]arg{buffer(0), buffer(1), momentum, clip}, extra...)
	return d.updated(c, "sgd", append(args, i64(c.In[0].Shape.Elements()), flag(c.Attr.Nesterov)),
		op.ArgRate, op.ArgDecay, op.ArgBeta1, op.ArgBeta2, op.ArgBias1)
}

func lion(d *Device, c op.Call) (program, error) {
	extra, err := copyArgs(c)
	if err != nil {
		return program{}, err
	}
	args := append([]arg{buffer(0), buffer(1), buffer(2), buffer(3)}, extra...)
	return d.updated(c, "lion", append(args, i64(c.In[0].Shape.Elements())), op.ArgRate, op.ArgDecay, op.ArgBeta1, op.ArgBeta2)
}

// updated prepares an update rule with numbers of the iteration behind its parameters.
func (d *Device) updated(c op.Call, name string, args []arg, scalars ...int) (program, error) {
	for _, kept := range c.In[2 : len(c.In)-1] {
		if kept.DType != dtype.F32 {
			return program{}, none("states as " + kept.DType.String() + " are not handled")
		}
	}
	for _, s := range scalars {
		args = append(args, iteration(s))
	}
	return just(d.line(of("update", c.In[1].DType), name, d.stride(c.In[0].Shape.Elements()), threads, args...))
}
