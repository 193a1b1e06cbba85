package op

import (
	"fmt"
	"math"

	"spillway/dtype"
	"spillway/quant"
)

// Every update rule leaves weight and states as they are where clip[0] is not positive.
// A weight may be in bf16, without an f32 one anywhere: then the step is made in f32 and
// its result rounded randomly (RoundRandomly), with the stream Args.Key and positions from
// Args.Row on. Such a call makes no copy.
//
// Adam updates in place: outputs are the same memory as the operands w, m, v. The
// gradient is multiplied by clip[0] first; then, in PyTorch's order,
//
//	Decoupled  w *= 1 - rate·decay, else g += decay·w
//	m += (g - m)·(1 - beta1)
//	v = beta2·v + (1 - beta2)·g²
//	w -= rate/bias1 · m/(sqrt(v)/bias2 + eps)
//
// with 1 - beta taken of the float32 beta. See State for m and v in fewer bits.
//
//	operands  w [n] f32 or bf16, g [n], m [n] and v [n] as State says, clip [2] f32
//	outputs   w, m, v, and the low-precision copy of w when Attr.To is set
const Adam Kind = "adam"

func init() {
	Register(Op{Kind: Adam, Infer: inferAdam, Cost: costUpdate, InPlace: updateInPlace, Reference: referenceAdam, Cases: (*CaseList).adamCases})
}

func inferAdam(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 5); err != nil {
		return nil, err
	}
	return updated(a, in, state{2, quant.Dyn8}, state{3, quant.UDyn8})
}

func referenceAdam(c Call, in, out []Array, args Args) {
	if skipped(c, in, out) {
		return
	}
	a, coded := scalarArgs(args), anyQuantized(in[2:4])
	for i, w := range in[0].F {
		g := in[1].F[i] * in[4].F[0]
		if coded && !finite(g) {
			out[0].F[i], out[1].F[i], out[2].F[i] = w, 0, 0
			continue
		}
		if c.Attr.Decoupled {
			w *= 1 - a[ArgRate]*a[ArgDecay]
		} else {
			g += a[ArgDecay] * w
		}
		m := in[2].F[i] + (g-in[2].F[i])*(1-a[ArgBeta1])
		v := a[ArgBeta2]*in[3].F[i] + (1-a[ArgBeta2])*g*g
		w -= a[ArgRate] / a[ArgBias1] * m / (math.Sqrt(v)/a[ArgBias2] + a[ArgEps])
		out[0].F[i], out[1].F[i], out[2].F[i] = w, m, v
	}
	storeWeight(c, out, args)
}

func (l *CaseList) adam(n int) {
	w, g, m := FilledF32(Spread, n), l.X(n), FilledF32(Spread, n)
	v := FilledF32(func(a Array, u func(int) float64) {
		for i := range a.F {
			a.F[i] = u(i)
		}
	}, n)
	zeros := FilledF32(func(Array, func(int) float64) {}, n)
	clip := Numbers(0.75, 2)
	later := Scalars{ArgRate: 1e-2, ArgDecay: 0.1, ArgBeta1: 0.9, ArgBeta2: 0.999, ArgEps: 1e-8, ArgBias1: 0.271, ArgBias2: 0.0547}
	start := Scalars{ArgRate: 1e-2, ArgBeta1: 0.9, ArgBeta2: 0.95, ArgEps: 1e-8, ArgBias1: 0.1, ArgBias2: 0.2236068}
	name := w.Type.Shape.String()
	l.Add(name, Adam, Attr{}, w, g, m, v, clip).Args.Scalars = later
	l.Add(name+" decoupled", Adam, Attr{Decoupled: true}, w, g, m, v, clip).Args.Scalars = later
	l.Add(name+" first iteration", Adam, Attr{Decoupled: true}, w, g, zeros, zeros, clip).Args.Scalars = start
	l.Add(name+" copy", Adam, Attr{Decoupled: true, To: dtype.BF16}, w, g, m, v, clip).Args.Scalars = later

	m8, v8, zeros8 := m, v, zeros
	m8.Type.DType, v8.Type.DType, zeros8.Type.DType = quant.Dyn8, quant.UDyn8, quant.Dyn8
	eight := l.Add(name+" 8-bit", Adam, Attr{}, w, g, m8, v8, clip)
	eight.Args.Scalars, eight.Large = later, n > 1000
	pure := w
	pure.Type.DType = dtype.BF16
	randomly := l.Add(name+" pure", Adam, Attr{Decoupled: true}, pure, g, m, v, clip)
	randomly.Args.Scalars, randomly.Args.Key, randomly.Args.Row = later, 77, 1000
	nothing := Numbers(0, 2)
	l.Add(name+" pure left", Adam, Attr{}, pure, g, m, v, nothing).Args = randomly.Args
	l.Add(name+" left", Adam, Attr{To: dtype.BF16}, w, g, m, v, nothing).Args.Scalars = later
	l.Add(name+" 8-bit left", Adam, Attr{}, w, g, m8, v8, nothing).Args.Scalars = later
	l.Add(name+" 8-bit first iteration", Adam, Attr{Decoupled: true}, w, g, zeros8, Operand{v8.Type, zeros.Fill}, clip).Args.Scalars = start
	l.Add(name+" 8-bit copy", Adam, Attr{Decoupled: true, To: dtype.BF16}, w, g, m8, v8, clip).Args.Scalars = later
	for _, kept := range [][2]dtype.Type{{dtype.BF16, dtype.BF16}, {dtype.F16, dtype.F16}, {quant.Dyn8, dtype.F32}, {quant.Dyn8, dtype.F16}, {dtype.BF16, quant.UDyn8}, {dtype.F32, dtype.BF16}} {
		m.Type.DType, v.Type.DType = kept[0], kept[1]
		l.Add(fmt.Sprintf("%s %v and %v", name, kept[0], kept[1]), Adam, Attr{Decoupled: true, To: dtype.BF16}, w, g, m, v, clip).Args.Scalars = later
	}
}

func (l *CaseList) adamCases() {
	for _, n := range []int{1, 77, 1031} {
		l.adam(n)
	}
}
