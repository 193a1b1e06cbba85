package op

import (
	"fmt"

	"spillway/dtype"
	"spillway/shape"
)

// Blend mixes numbers into others, in place: it holds gradients between the calls of a loop, and
// averages weights.
//
//	x = keep·x + take·y, or take·y alone where keep is 0
//
// With plain of 0, y is multiplied by clip[0] first. Where clip[0] is not positive, x stays as it is.
// The result is defined to the bit: y is rounded after each factor, keep·x is fused with the sum.
//
//	operands  x [n] f32, y [n], clip [2] f32
//	output    x
const Blend Kind = "blend"

func init() {
	Register(Op{Kind: Blend, Takes: 3, Infer: inferBlend, InPlace: func(Call) []int { return []int{0} }, Reference: referenceBlend,
		Scalars: []string{"keep", "take", "plain"}, Cases: blendCases})
}

// BlendScalars are the numbers of a blend.
func BlendScalars(keep, take float32, plain bool) Scalars {
	s := Scalars{keep, take}
	if plain {
		s[2] = 1
	}
	return s
}

func inferBlend(_ Attr, in []Type) ([]Type, error) {
	x, y, clip := in[0], in[1], Type{DType: dtype.F32, Shape: shape.Of(2)}
	switch {
	case x.DType != dtype.F32 || !x.Shape.Equal(y.Shape):
		return nil, fmt.Errorf("%v into %v, want f32 of the same shape", y, x)
	case !in[2].Equal(clip):
		return nil, fmt.Errorf("clip is %v, want %v", in[2], clip)
	}
	return []Type{x}, float(in, 1)
}

func referenceBlend(_ Call, in, out []Array, args Args) {
	keep, take, by := args.Scalars[0], args.Scalars[1], float32(in[2].F[0])
	for i, x := range in[0].F {
		out[0].F[i] = x
		if !(in[2].F[0] > 0) {
			continue
		}
		y := float32(in[1].F[i])
		if args.Scalars[2] == 0 {
			y *= by
		}
		if y = float32(y * take); keep != 0 {
			y = dtype.FMA(float32(x), keep, y)
		}
		out[0].F[i] = float64(y)
	}
}

func blendCases(l *CaseList) {
	for _, n := range []int{1, 77, 1031} {
		for i, s := range []Scalars{BlendScalars(0, 1, false), BlendScalars(1, 1, false), BlendScalars(0.99, 0.01, true)} {
			name := []string{"set", "add", "average"}[i]
			l.Add(fmt.Sprintf("[%d] %s", n, name), Blend, Attr{}, FilledF32(Spread, n), l.X(n), Numbers(0.75, 2)).Args.Scalars = s
		}
		l.Add(fmt.Sprintf("[%d] skipped", n), Blend, Attr{}, FilledF32(Spread, n), l.X(n), Numbers(0, 2)).Args.Scalars = BlendScalars(1, 1, false)
	}
}
