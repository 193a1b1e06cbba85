package op

import "fmt"

// ScatterReduce: y as x, but where ids name a place along Attr.Axis the largest, or by Attr.Reduction the smallest, of the number that is there
// and those of z that go there: PyTorch's scatter_reduce by amax or amin. ids and z have the shape of x but for that dimension.
// An id outside is an error; see Call.IDs.
//
//	operands  x, ids i32, z
const ScatterReduce Kind = "scatter_reduce"

func init() {
	Register(Op{Kind: ScatterReduce, Takes: 3, Infer: inferScatterReduce, Reference: referenceScatterReduce, Cases: (*CaseList).scatterReduces,
		Cost: func(c Call) Cost { return Cost{Flops: float64(c.In[2].Shape.Elements())} },
		IDs: func(c Call) IDs {
			_, n, _ := c.In[0].Shape.Around(c.Attr.Axis, 1)
			return IDs{Operand: 1, Count: n}
		}})
}

func inferScatterReduce(a Attr, in []Type) ([]Type, error) {
	if a.Reduction != ReduceMax && a.Reduction != ReduceMin {
		return nil, fmt.Errorf("has no reduction %v, only %v and %v", a.Reduction, ReduceMax, ReduceMin)
	}
	taken, err := inferGather(a, in[:2])
	if err != nil {
		return nil, err
	}
	if !taken[0].Equal(in[2]) {
		return nil, fmt.Errorf("operand 2 is %v, want %v", in[2], taken[0])
	}
	return in[:1:1], nil
}

func referenceScatterReduce(c Call, in, out []Array, _ Args) {
	_, n, _ := c.In[0].Shape.Around(c.Attr.Axis, 1)
	outer, m, inner := c.In[1].Shape.Around(c.Attr.Axis, 1)
	copy(out[0].F, in[0].F)
	for i := range outer * m * inner {
		to := &out[0].F[(i/(m*inner)*n+int64(clamp(in[1].I[i], int(n))))*inner+i%inner]
		if c.Attr.Reduction == ReduceMin {
			*to = min(*to, in[2].F[i])
		} else {
			*to = max(*to, in[2].F[i])
		}
	}
}

func (l *CaseList) scatterReduces() {
	for _, r := range []Reduction{ReduceMax, ReduceMin} {
		for axis, dims := range [][]int{{2, 3, 9}, {2, 9, 5}, {9, 3, 5}} {
			into := [][]int{{2, 3, 4}, {2, 4, 5}, {4, 3, 5}}[axis]
			l.Add(fmt.Sprint(r, " axis ", axis), ScatterReduce, Attr{Reduction: r, Axis: int64(axis)}, l.X(into...), Below(4, dims...), l.X(dims...))
		}
		l.Add(fmt.Sprint(r, " of many"), ScatterReduce, Attr{Reduction: r}, l.X(3, 50), Below(47, 3, 301), l.X(3, 301))
	}
}
