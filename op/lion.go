package op

import (
	"fmt"

	"spillway/dtype"
	"spillway/quant"
)

// Lion updates in place with steps of one size, the sign of a mean. The gradient is
// multiplied by clip[0]; then
//
//	w *= 1 - rate·decay
//	w -= rate·sign(beta1·m + (1 - beta1)·g)
//	m = beta2·m + (1 - beta2)·g
//
//	operands  w [n] f32 or bf16, g [n], m [n] as State says, clip [2] f32
//	outputs   w, m, and the low-precision copy of w when Attr.To is set
const Lion Kind = "lion"

func init() {
	Register(Op{Kind: Lion, Infer: inferLion, Cost: costUpdate, InPlace: updateInPlace, Reference: referenceLion, Cases: (*CaseList).lionCases})
}

func inferLion(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 4); err != nil {
		return nil, err
	}
	return updated(a, in, state{2, quant.Dyn8})
}

func referenceLion(c Call, in, out []Array, args Args) {
	if skipped(c, in, out) {
		return
	}
	a := scalarArgs(args)
	for i, w := range in[0].F {
		g, m := in[1].F[i]*in[3].F[0], in[2].F[i]
		if in[2].Type.DType.Block() && !finite(g) {
			out[0].F[i], out[1].F[i] = w, 0
			continue
		}
		step := sign(a[ArgBeta1]*m + (1-a[ArgBeta1])*g)
		out[0].F[i] = w*(1-a[ArgRate]*a[ArgDecay]) - a[ArgRate]*step
		out[1].F[i] = a[ArgBeta2]*m + (1-a[ArgBeta2])*g
	}
	storeWeight(c, out, args)
}

func sign(f float64) float64 {
	switch {
	case f > 0:
		return 1
	case f < 0:
		return -1
	}
	return f // zero, or not a number
}

func (l *CaseList) lion(n int) {
	w, g, m, clip := FilledF32(Spread, n), l.X(n), FilledF32(Spread, n), Numbers(0.75, 2)
	args := Scalars{ArgRate: 1e-2, ArgDecay: 0.1, ArgBeta1: 0.9, ArgBeta2: 0.99}
	name := w.Type.Shape.String()
	l.Add(name, Lion, Attr{}, w, g, m, clip).Args.Scalars = args
	l.Add(name+" first iteration", Lion, Attr{}, w, g, FilledF32(func(Array, func(int) float64) {}, n), clip).Args.Scalars = args
	for _, kept := range []dtype.Type{dtype.BF16, dtype.F16, quant.Dyn8} {
		l.Add(fmt.Sprintf("%s %v", name, kept), Lion, Attr{}, w, g, SpreadAs(kept, n), clip).Args.Scalars = args
	}
	pure := w
	pure.Type.DType = dtype.BF16
	l.Add(name+" pure", Lion, Attr{}, pure, g, m, clip).Args = Args{Scalars: args, Key: 79}
	l.Add(name+" left", Lion, Attr{}, w, g, m, Numbers(0, 2)).Args.Scalars = args
	l.Add(name+" copy", Lion, Attr{To: dtype.BF16}, w, g, m, clip).Args.Scalars = args
}

func (l *CaseList) lionCases() {
	for _, n := range []int{1, 77, 1031} {
		l.lion(n)
	}
}
