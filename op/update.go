package op

import (
	"fmt"

	"spillway/dtype"
)

// SumSquares: Σ x² as f64, the part of the gradient norm one tensor gives.
//
//	operand  x
//	output   [1] f64
func inferSumSquares(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1); err != nil {
		return nil, err
	}
	return []Type{{dtype.F64, []int64{1}}}, float(in, 0)
}

// ClipScale: from partial sums of squares the gradient norm and the factor that
// clips it: min(1, F[0]/(norm + 1e-6)); F[0] ≤ 0 leaves the factor at 1.
//
//	operand  partials [n] f64, added in order
//	output   [2] f32: factor, norm
func inferClipScale(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 1); err != nil {
		return nil, err
	}
	if in[0].DType != dtype.F64 || len(in[0].Shape) != 1 {
		return nil, fmt.Errorf("operand is %v, want f64 partial sums", in[0])
	}
	return []Type{{dtype.F32, []int64{2}}}, nil
}

// Scalars of Adam and SGD in Args.F.
const (
	ArgRate    = 0 // learning rate
	ArgDecay   = 1 // weight decay
	ArgBeta1   = 2 // Adam: decay of the mean; SGD: momentum
	ArgBeta2   = 3 // Adam: decay of the square; SGD: dampening
	ArgEps     = 4
	ArgBias1   = 5 // 1 - beta1^t; SGD: 1 on the first iteration, else 0
	ArgBias2   = 6 // sqrt(1 - beta2^t)
	ArgMaxNorm = 0 // ClipScale
)

// Adam updates in place: outputs are the same memory as the operands w, m, v. The
// gradient is multiplied by clip[0] first. Attr.Decoupled makes it AdamW.
//
//	operands  w [n] f32, g [n], m [n] f32, v [n] f32, clip [2] f32
//	outputs   w, m, v, and the low-precision copy of w when Attr.To is set
func inferAdam(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 5); err != nil {
		return nil, err
	}
	return updated(a, in, 0, 2, 3)
}

// SGD with momentum updates in place.
//
//	operands  w [n] f32, g [n], m [n] f32, clip [2] f32
//	outputs   w, m, and the low-precision copy of w when Attr.To is set
func inferSGD(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 4); err != nil {
		return nil, err
	}
	return updated(a, in, 0, 2)
}

func updated(a Attr, in []Type, which ...int) ([]Type, error) {
	out := make([]Type, 0, len(which)+1)
	for _, i := range which {
		if !in[i].Shape.Equal(in[0].Shape) {
			return nil, fmt.Errorf("operand %d is %v beside %v", i, in[i], in[0])
		}
		out = append(out, in[i])
	}
	if !in[1].Shape.Equal(in[0].Shape) {
		return nil, fmt.Errorf("gradient %v beside weight %v", in[1], in[0])
	}
	if a.To != dtype.Invalid {
		out = append(out, Type{a.To, in[0].Shape})
	}
	return out, float(in, 0, 1)
}

func costUpdate(c Call) Cost { return Cost{Flops: 15 * float64(c.In[0].Shape.Elements())} }
