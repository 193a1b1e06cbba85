package op

import (
	"fmt"
	"math"

	"spillway/dtype"
)

func init() {
	Register(Op{Kind: SumSquares, Takes: 1, Infer: inferSumSquares, Cost: costSumRows, Accumulates: firstOutput, Reference: referenceSumSquares, Cases: (*CaseList).sumSquares})
	Register(Op{Kind: ClipScale, Takes: 1, Infer: inferClipScale, Reference: referenceClipScale, Scalars: []string{"max_norm", "loss_scale"}, Cases: (*CaseList).clipScale})
}

// SumSquares: Σ x² as f64, the part of the gradient norm one tensor gives.
//
//	operand  x
//	output   [1] f64
const SumSquares Kind = "sum_squares"

func inferSumSquares(a Attr, in []Type) ([]Type, error) {
	return []Type{{dtype.F64, []int64{1}}}, float(in, 0)
}

// ClipScale: from partial sums of squares of gradients times a loss scale F[1] (0
// counts as 1) the norm of the gradients themselves, and the factor that takes the
// scale off and clips: min(1, F[0]/(norm + 1e-6))/F[1]; F[0] ≤ 0 clips nothing. Where
// the norm is infinite or not a number the factor is 0, which tells updates to leave
// everything as it is.
//
//	operand  partials [n] f64, added in order
//	output   [2] f32: factor, norm
const ClipScale Kind = "clip_scale"

func inferClipScale(a Attr, in []Type) ([]Type, error) {
	if in[0].DType != dtype.F64 || len(in[0].Shape) != 1 {
		return nil, fmt.Errorf("operand is %v, want f64 partial sums", in[0])
	}
	return []Type{{dtype.F32, []int64{2}}}, nil
}

func referenceSumSquares(c Call, in, out []Array, _ Args) {
	out[0].F[0] = dot(in[0].F, in[0].F)
}

// ClipScalars are the scalars of ClipScale: the largest norm that is not clipped (0 or
// less clips nothing), and what the loss was multiplied by (0 counts as 1).
func ClipScalars(maxNorm, lossScale float32) Scalars { return Scalars{maxNorm, lossScale} }

func referenceClipScale(c Call, in, out []Array, args Args) {
	var sum float64
	for _, f := range in[0].F {
		sum += f
	}
	scale := 1.0
	if f := float64(args.Scalars[1]); f != 0 {
		scale = f
	}
	norm, factor := math.Sqrt(sum)/scale, 1/scale
	if most := float64(args.Scalars[0]); most > 0 {
		factor = min(1, most/(norm+1e-6)) / scale
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		factor = 0
	}
	out[0].F[0], out[0].F[1] = factor, norm
}

func (l *CaseList) sumSquares() {
	for _, dims := range [][]int{{1}, {3, 43}, {1031}} {
		l.Both(l.X(dims...).Type.Shape.String(), SumSquares, Attr{}, l.X(dims...))
	}
}

func (l *CaseList) clipScale() {
	partials := Operand{Type{dtype.F64, []int64{5}}, fillBy(func(_ int, u float64) float64 { return 4 * u })}
	overflown := Operand{partials.Type, func(a Array, u func(int) float64) {
		partials.Fill(a, u)
		a.F[2] = math.Inf(1)
	}}
	l.Add("clips", ClipScale, Attr{}, partials).Args.Scalars = ClipScalars(0.5, 0)
	l.Add("leaves", ClipScale, Attr{}, partials).Args.Scalars = ClipScalars(1000, 0)
	l.Add("off", ClipScale, Attr{}, partials)
	l.Add("scaled", ClipScale, Attr{}, partials).Args.Scalars = ClipScalars(0.5, 4)
	l.Add("overflown", ClipScale, Attr{}, overflown).Args.Scalars = ClipScalars(0.5, 4)
}
