package cuda

import (
	"cmp"
	"fmt"

	"spillway/dtype"
	"spillway/op"
)

func init() {
	register(op.Copy, scaled)
	register(op.Detach, scaled)
	register(op.Follow, scaled)
	register(op.Add, combined)
	register(op.Mul, combined)
	register(op.Scale, scaled)
	register(op.Unary, activation)
	register(op.UnaryGrad, activation)
	register(op.UnaryGradSums, activationSums)
	register(op.Gated, activation)
	register(op.GatedGrad, activation)
	register(op.Dropout, dropout)
	register(op.Cast, cast)
}

// elementwise prepares a kernel of elementwise.cu: a thread per pack of the first output.
func (d *Device) elementwise(c op.Call, name string, args ...arg) (program, error) {
	n := c.Out[0].Shape.Elements()
	return single(d.line(unitFor("elementwise", c.In[0].DType), name, ceilDiv(n, threads*elementsPerLoad(c.In[0].DType)), threads, args...))
}

// scaled is Copy, Detach, Follow and Scale.
func scaled(d *Device, c op.Call) (program, error) {
	by := 1.0
	if c.Kind == op.Scale {
		by = c.Attr.Scale
	}
	return d.elementwise(c, "scale", buffer(0), buffer(len(c.In)), i64(c.Out[0].Shape.Elements()), f32(by), flag(c.Attr.Accumulate))
}

// combined is Add and Mul.
func combined(d *Device, c op.Call) (program, error) {
	name := "add"
	if c.Kind == op.Mul {
		name = "mul"
	}
	n, period := c.Out[0].Shape.Elements(), c.In[1].Shape.Elements()
	if n == period {
		return d.elementwise(c, name, buffer(0), buffer(1), buffer(2), i64(n), flag(c.Attr.Accumulate))
	}
	return d.elementwise(c, name+"Repeated", buffer(0), buffer(1), buffer(2), i64(n), i64(period), flag(c.Attr.Accumulate))
}

// activation is the ops with a function of one number; each function has its kernel.
func activation(d *Device, c op.Call) (program, error) {
	if c.Attr.Func > op.Sigmoid {
		return plainFunction(d, c)
	}
	name := map[op.Kind]string{op.Unary: "unary", op.UnaryGrad: "unaryGrad", op.Gated: "gated", op.GatedGrad: "gatedGrad"}[c.Kind]
	var args []arg
	for i := range len(c.In) + len(c.Out) {
		args = append(args, buffer(i))
	}
	return d.elementwise(c, fmt.Sprint(name, uint8(c.Attr.Func)), append(args, i64(c.Out[0].Shape.Elements()))...)
}

// activationSums is the gradient of an activation with sums over rows, in parts that are added afterwards.
func activationSums(d *Device, c op.Call) (p program, err error) {
	t, width := c.In[0].DType, c.In[0].Shape.Last()
	if c.Attr.Func > op.Sigmoid || width%elementsPerLoad(t) != 0 {
		return p, unsupported("its columns are summed by an op of their own")
	}
	rows := c.In[0].Shape.Elements() / width
	tiles, share, shares := d.rowShares(rows, width, elementsPerLoad(t))
	p.workspace = 4 * shares * width
	err = cmp.Or(
		p.add(d.grid(unitFor("elementwise", t), fmt.Sprint("unaryGradSums", uint8(c.Attr.Func)), [3]int64{tiles, shares, 1}, [3]int64{32, 8, 1}, 0,
			buffer(0), buffer(1), buffer(2), scratchAt(0), i64(rows), i64(width), i64(share))),
		p.add(d.foldRows(t, scratchAt(0), buffer(3), shares, width, c.Attr.Accumulate)))
	return p, err
}

func dropout(d *Device, c op.Call) (program, error) {
	n, p := c.In[0].Shape.Elements(), c.Attr.Prob
	return d.elementwise(c, "dropout", buffer(0), buffer(1), i64(n), i64(n/c.In[0].Shape[0]),
		f32(p), f32(1/(1-p)), i64(int64(c.Attr.Stream)), key(), row())
}

func cast(d *Device, c op.Call) (program, error) {
	if n := c.In[0].Shape.Elements(); c.In[0].DType == dtype.I32 {
		return single(d.line(unitFor("counted", dtype.F32), "integersToF32", d.strideBlocks(n), threads, buffer(0), buffer(1), i64(n)))
	}
	name := map[dtype.Type]string{dtype.F32: "castToF32", dtype.BF16: "castToBF16", dtype.F16: "castToF16"}[c.Attr.To]
	if name == "" {
		return program{}, unsupported("casts to " + c.Attr.To.String() + " are not handled")
	}
	return d.elementwise(c, name, buffer(0), buffer(1), i64(c.In[0].Shape.Elements()))
}
