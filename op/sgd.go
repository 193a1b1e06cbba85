package op

import (
	"fmt"

	"spillway/dtype"
	"spillway/quant"
)

// SGD updates in place, the gradient multiplied by clip[0] and decay·w added. With
// momentum, m = momentum·m + (1 - dampening)·g, but m = g on the first iteration,
// and the step is m, or g + momentum·m with Nesterov. Without m there is no momentum
// and the step is g; with an m and a momentum of 0 too, and m stays untouched.
// w -= rate·step.
//
//	operands  w [n] f32 or bf16, g [n], m [n] as State says or nothing, clip [2] f32
//	outputs   w, m if there is one, and the low-precision copy of w when Attr.To is set
const SGD Kind = "sgd"

func init() {
	Register(Op{Kind: SGD, Infer: inferSGD, Cost: costUpdate, InPlace: updateInPlace, Reference: referenceSGD, Cases: (*CaseList).sgdCases})
}

func inferSGD(a Attr, in []Type) ([]Type, error) {
	if len(in) == 3 {
		return updated(a, in)
	}
	if err := arity(in, 4); err != nil {
		return nil, err
	}
	return updated(a, in, state{2, quant.Dyn8})
}

func referenceSGD(c Call, in, out []Array, args Args) {
	if skipped(c, in, out) {
		return
	}
	a := scalarArgs(args)
	for i, w := range in[0].F {
		g := in[1].F[i] * in[len(in)-1].F[0]
		if len(in) == 4 && in[2].Type.DType.Block() && !finite(g) {
			out[0].F[i], out[1].F[i] = w, 0
			continue
		}
		step := g + a[ArgDecay]*w
		if len(in) == 4 {
			step, out[1].F[i] = momentumStep(c.Attr.Nesterov, in[2].F[i], step, a)
		}
		out[0].F[i] = w - a[ArgRate]*step
	}
	storeWeight(c, out, args)
}

// momentumStep gives the step and the new m.
func momentumStep(nesterov bool, m, g float64, a [MaxScalars]float64) (step, next float64) {
	momentum := a[ArgBeta1]
	if momentum == 0 {
		return g, m
	}
	m = momentum*m + (1-a[ArgBeta2])*g
	if a[ArgBias1] == 1 {
		m = g
	}
	if nesterov {
		return g + momentum*m, m
	}
	return m, m
}

func (l *CaseList) sgd(n int) {
	w, g, m, clip := FilledF32(Spread, n), l.X(n), FilledF32(Spread, n), Numbers(0.75, 2)
	name := w.Type.Shape.String()
	for _, c := range []struct {
		name                         string
		attr                         Attr
		momentum, dampening, isFirst float32
	}{
		{"plain", Attr{}, 0, 0, 0},
		{"momentum", Attr{}, 0.9, 0, 0},
		{"momentum first iteration", Attr{}, 0.9, 0.5, 1},
		{"dampened", Attr{}, 0.9, 0.5, 0},
		{"nesterov", Attr{Nesterov: true}, 0.9, 0, 0},
		{"copy", Attr{To: dtype.BF16}, 0.9, 0, 0},
	} {
		l.Add(name+" "+c.name, SGD, c.attr, w, g, m, clip).Args.Scalars =
			Scalars{ArgRate: 0.05, ArgDecay: 0.01, ArgBeta1: c.momentum, ArgBeta2: c.dampening, ArgBias1: c.isFirst}
	}
	for _, kept := range []dtype.Type{dtype.BF16, dtype.F16, quant.Dyn8} {
		l.Add(fmt.Sprintf("%s %v", name, kept), SGD, Attr{}, w, g, SpreadAs(kept, n), clip).Args.Scalars = Scalars{ArgRate: 0.05, ArgDecay: 0.01, ArgBeta1: 0.9}
	}
	pure := w
	pure.Type.DType = dtype.BF16
	l.Add(name+" pure", SGD, Attr{}, pure, g, m, clip).Args = Args{Scalars: Scalars{ArgRate: 0.05, ArgBeta1: 0.9}, Key: 78}
	l.Add(name+" left", SGD, Attr{}, w, g, m, Numbers(0, 2)).Args.Scalars = Scalars{ArgRate: 0.05, ArgDecay: 0.01, ArgBeta1: 0.9}
	l.Add(name+" without m", SGD, Attr{}, w, g, clip).Args.Scalars = Scalars{ArgRate: 0.05, ArgDecay: 0.01}
}

func (l *CaseList) sgdCases() {
	for _, n := range []int{1, 77, 1031} {
		l.sgd(n)
	}
}
