package op

import (
	"fmt"
	"math"
	"slices"

	"spillway/dtype"
)

// ArgSort: the order of each row of the last dimension, the smallest number first or with Attr.Inverse the largest: where
// each of them is. Equal ones stay in order, and NaN counts as the largest, as in PyTorch. The output is I32. No gradient passes through it.
const ArgSort Kind = "argsort"

func init() {
	Register(Op{Kind: ArgSort, Takes: 1, Infer: inferArgSort, Reference: referenceArgSort, Cases: (*CaseList).argSorts,
		Cost: func(c Call) Cost {
			n := float64(c.In[0].Shape.Elements())
			return Cost{Flops: 4 * n * math.Log2(float64(c.In[0].Shape.Last()+1))}
		}})
}

func inferArgSort(_ Attr, in []Type) ([]Type, error) {
	if n := in[0].Shape.Last(); len(in[0].Shape) == 0 || n > math.MaxInt32 {
		return nil, fmt.Errorf("%v has rows of %d, want 1 dimension or more and rows of at most %d", in[0], n, math.MaxInt32)
	}
	return []Type{{dtype.I32, in[0].Shape}}, float(in, 0)
}

func referenceArgSort(c Call, in, out []Array, _ Args) {
	n := c.In[0].Shape.Last()
	for r, x := range rows(in[0].F, n) {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int {
			a, b := x[i], x[j]
			if c.Attr.Inverse {
				a, b = b, a
			}
			switch {
			case a < b || !math.IsNaN(a) && math.IsNaN(b):
				return -1
			case a > b || math.IsNaN(a) && !math.IsNaN(b):
				return 1
			}
			return 0
		})
		for k, i := range order {
			out[0].I[int64(r)*n+int64(k)] = int32(i)
		}
	}
}

func (l *CaseList) argSorts() {
	for _, most := range []bool{false, true} {
		a := Attr{Inverse: most}
		name := func(dims ...int) string { return fmt.Sprint(dims, " largest first ", most) }
		for _, dims := range [][]int{{1}, {3, 1}, {3, 37}, {2, 5, 130}, {2, 1037}} {
			l.Add(name(dims...), ArgSort, a, l.X(dims...))
		}
		few := Operand{l.X(7, 70).Type, fillBy(func(_ int, u float64) float64 { return []float64{-1, math.Copysign(0, -1), 0, 1}[int(4*u)] })}
		l.Add("equal ones, "+name(7, 70), ArgSort, a, few)
		wide := Operand{l.X(4, 9).Type, fillBy(func(i int, u float64) float64 { return []float64{u, math.Inf(1), -u, math.Inf(-1)}[i%4] })}
		l.Add("infinite ones, "+name(4, 9), ArgSort, a, wide)
	}
}
