package op

import "fmt"

// Gather: y[.. i ..] = x[.. ids[.. i ..] ..] along Attr.Axis, as PyTorch's gather; ids have the shape of
// x but for that dimension. An id outside is an error; see Call.IDs.
//
//	operands  x, ids i32
const Gather Kind = "gather"

// GatherGrad: dx of Attr.Length along Attr.Axis, each the sum of dy over the places that took it, in
// order: PyTorch's scatter_add to zeros, and an op of models too. Its own gradient is Gather. An id outside is an error; see Call.IDs.
// Operands ids, dy.
const GatherGrad Kind = "gather_grad"

func init() {
	Register(Op{Kind: Gather, Takes: 2, Infer: inferGather, Reference: referenceGather, Cases: (*CaseList).gathers,
		Cost: func(c Call) Cost { return Cost{Bytes: c.In[1].Bytes() + 2*c.Out[0].Bytes()} },
		IDs: func(c Call) IDs {
			_, n, _ := c.In[0].Shape.Around(c.Attr.Axis, 1)
			return IDs{Operand: 1, Count: n}
		}})
	Register(Op{Kind: GatherGrad, Takes: 2, Infer: inferGatherGrad, Reference: referenceGatherGrad,
		IDs: func(c Call) IDs { return IDs{Operand: 0, Count: c.Attr.Length} }})
}

func inferGather(a Attr, in []Type) ([]Type, error) {
	x, at := in[0].Shape, in[1].Shape
	if err := check(ids(in, 1), float(in, 0)); err != nil {
		return nil, err
	}
	if !x.Has(a.Axis, 1) || !at.Has(a.Axis, 1) || x.Elements() == 0 {
		return nil, fmt.Errorf("%v and %v have no dimension %d, counted from the last", in[0], in[1], a.Axis)
	}
	_, n, _ := at.Around(a.Axis, 1)
	if !x.With(a.Axis, n).Equal(at) {
		return nil, fmt.Errorf("ids %v do not fit %v: all dimensions but %d, counted from the last, must be the same", in[1], in[0], a.Axis)
	}
	return []Type{{in[0].DType, at}}, nil
}

func inferGatherGrad(a Attr, in []Type) ([]Type, error) {
	if err := check(ids(in, 0), float(in, 1)); err != nil {
		return nil, err
	}
	if !in[0].Shape.Equal(in[1].Shape) || !in[0].Shape.Has(a.Axis, 1) || a.Length < 1 {
		return nil, fmt.Errorf("ids %v do not fit %v, or have no dimension %d of %d, counted from the last", in[0], in[1], a.Axis, a.Length)
	}
	out := in[1].Shape.With(a.Axis, a.Length)
	return []Type{{in[1].DType, out}}, out.Check()
}

func referenceGather(c Call, in, out []Array, _ Args) {
	_, n, _ := c.In[0].Shape.Around(c.Attr.Axis, 1)
	outer, m, inner := c.In[1].Shape.Around(c.Attr.Axis, 1)
	for i := range outer * m * inner {
		o, k := i/(m*inner), i%inner
		out[0].F[i] = in[0].F[(o*n+int64(clamp(in[1].I[i], int(n))))*inner+k]
	}
}

func referenceGatherGrad(c Call, in, out []Array, _ Args) {
	n := c.Attr.Length
	outer, m, inner := c.In[0].Shape.Around(c.Attr.Axis, 1)
	clear(out[0].F)
	for i := range outer * m * inner {
		o, k := i/(m*inner), i%inner
		out[0].F[(o*n+int64(clamp(in[0].I[i], int(n))))*inner+k] += in[1].F[i]
	}
}

func (l *CaseList) gathers() {
	for axis, dims := range [][]int{{2, 3, 9}, {2, 9, 5}, {9, 3, 5}} {
		a := Attr{Axis: int64(axis)}
		name := fmt.Sprint("axis ", axis)
		l.Add(name, Gather, a, l.X([][]int{{2, 3, 4}, {2, 4, 5}, {4, 3, 5}}[axis]...), Below(4, dims...))
		a.Length = 4
		l.Add(name, GatherGrad, a, Below(4, dims...), l.X(dims...))
	}
	l.Add("one each", Gather, Attr{}, l.X(40, 30), Below(30, 40, 1))
}
