package op

import (
	"fmt"

	"spillway/dtype"
)

// The elementwise ops without a function. The second operand of Add and Mul may be
// smaller: its shape is then the end of the first's, and it is repeated over the outer
// dimensions.
const (
	Copy  Kind = "copy"  // y = x
	Scale Kind = "scale" // y = Attr.Scale·x
	Add   Kind = "add"   // z = x + y
	Mul   Kind = "mul"   // z = x·y
	// Detach is Copy through which no gradient passes.
	Detach Kind = "detach" // y = x
	// Follow is Copy of x, towards which a running statistic, its second operand, is to move: the gradient of the statistic is how far it is from x.
	Follow Kind = "follow" // y = x
	Cast   Kind = "cast"   // the same numbers in element type Attr.To; of i32 in f32
)

func init() {
	Register(Op{Kind: Copy, Takes: 1, Infer: inferCopy, Accumulates: firstOutput, Reference: referenceCopy, Cases: (*CaseList).elementwise})
	Register(Op{Kind: Detach, Takes: 1, Infer: inferCopy, Reference: referenceCopy})
	Register(Op{Kind: Follow, Takes: 2, Infer: inferFollow, Reference: referenceCopy})
	Register(Op{Kind: Scale, Takes: 1, Infer: inferCopy, Accumulates: firstOutput, Reference: referenceScale})
	Register(Op{Kind: Add, Takes: 2, Infer: inferBroadcast, Accumulates: firstOutput, Reference: referenceAdd})
	Register(Op{Kind: Mul, Takes: 2, Infer: inferBroadcast, Accumulates: firstOutput, Reference: referenceMul})
	Register(Op{Kind: Cast, Takes: 1, Infer: inferCast, Reference: referenceCast})
}

func inferCopy(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0]}, float(in, 0)
}

func inferFollow(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0]}, check(float(in, 0), same(in, 0, 1))
}

func inferBroadcast(a Attr, in []Type) ([]Type, error) {
	x, y := in[0], in[1]
	cut := len(x.Shape) - len(y.Shape)
	if cut < 0 || !x.Shape[cut:].Equal(y.Shape) || x.DType != y.DType {
		return nil, fmt.Errorf("%v and %v: the second must have the type of the first and the end of its shape", x, y)
	}
	return []Type{x}, float(in, 0, 1)
}

func inferCast(a Attr, in []Type) ([]Type, error) {
	if !a.To.Float() || a.To.Block() {
		return nil, fmt.Errorf("to %v, want a plain real type", a.To)
	}
	if in[0].DType == dtype.I32 && a.To == dtype.F32 {
		return []Type{{a.To, in[0].Shape}}, nil
	}
	return []Type{{a.To, in[0].Shape}}, float(in, 0)
}

func referenceCast(c Call, in, out []Array, args Args) {
	for i, n := range in[0].I {
		out[0].F[i] = float64(n)
	}
	if in[0].I == nil {
		referenceCopy(c, in, out, args)
	}
}

func (l *CaseList) elementwise() {
	for _, dims := range [][]int{{1}, {3, 33}, {2, 5, 7}, {67, 129}} {
		name := fmt.Sprint(dims)
		l.Both(name, Copy, Attr{}, l.X(dims...))
		l.Both(name, Scale, Attr{Scale: -1.7}, l.X(dims...))
		l.Both(name, Add, Attr{}, l.X(dims...), l.X(dims...))
		l.Both(name, Mul, Attr{}, l.X(dims...), l.X(dims...))
	}
	l.Add("3x33", Detach, Attr{}, l.X(3, 33))
	l.Add("3x33", Follow, Attr{}, l.X(3, 33), l.X(3, 33))
	for _, kind := range []Kind{Add, Mul} {
		l.Both("vector over rows", kind, Attr{}, l.X(2, 3, 19), l.X(19))
		l.Both("matrix over samples", kind, Attr{}, l.X(4, 3, 5), l.X(3, 5))
		l.Both("1 element over all", kind, Attr{}, l.X(4, 1), l.X(1))
	}
	for _, to := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16} {
		l.Add("to "+to.String(), Cast, Attr{To: to}, l.X(3, 37))
	}
	l.Add("integers", Cast, Attr{To: dtype.F32}, Integers(func(i int, u float64) int32 { return int32((u - 0.5) * 1000) }, 3, 37))
}

var (
	referenceCopy  = each(func(c Call, x []float64) float64 { return x[0] })
	referenceAdd   = each(func(c Call, x []float64) float64 { return x[0] + x[1] })
	referenceMul   = each(func(c Call, x []float64) float64 { return x[0] * x[1] })
	referenceScale = each(func(c Call, x []float64) float64 { return c.Attr.Scale * x[0] })
)
