package op

import (
	"fmt"
	"math"

	"spillway/dtype"
)

// Scalars of Adam, SGD and Lion in Args.F.
const (
	ArgRate  = 0 // learning rate
	ArgDecay = 1 // weight decay
	ArgBeta1 = 2 // Adam: decay of the mean; SGD: momentum; Lion: share of m in the step
	ArgBeta2 = 3 // Adam: decay of the square; SGD: dampening; Lion: decay of m
	ArgEps   = 4
	ArgBias1 = 5 // 1 - beta1^t; SGD: 1 on the first iteration, else 0
	ArgBias2 = 6 // sqrt(1 - beta2^t)
)

// updated checks the operands of an update rule, of which it replaces the weight and
// the states.
func updated(a Attr, in []Type, states ...state) ([]Type, error) {
	if in[0].DType != dtype.F32 && (in[0].DType != dtype.BF16 || a.To != dtype.Invalid) {
		return nil, fmt.Errorf("the weight is %v with a copy as %v, want f32, or bf16 without a copy", in[0], a.To)
	}
	out := append(make([]Type, 0, len(states)+2), in[0])
	for _, s := range states {
		t := in[s.operand]
		if !t.Shape.Equal(in[0].Shape) || !s.holds(t.DType) {
			return nil, fmt.Errorf("operand %d is %v beside the weight %v, want the same in f32, bf16, f16 or %v", s.operand, t, in[0], s.coded)
		}
		out = append(out, t)
	}
	clip := Type{dtype.F32, []int64{2}}
	if last := in[len(in)-1]; !last.Equal(clip) {
		return nil, fmt.Errorf("clip is %v, want %v", last, clip)
	}
	if !in[1].Shape.Equal(in[0].Shape) {
		return nil, fmt.Errorf("gradient %v beside weight %v", in[1], in[0])
	}
	if a.To != dtype.Invalid {
		if !a.To.Float() || a.To.Block() {
			return nil, fmt.Errorf("copy as %v, want a plain real type", a.To)
		}
		out = append(out, Type{a.To, in[0].Shape})
	}
	return out, float(in, 0, 1)
}

// updateInPlace: the weight and the states are updated in place; a copy of the weight
// has memory of its own.
func updateInPlace(c Call) []int {
	list := []int{0}
	for i := 2; i < len(c.In)-1; i++ {
		list = append(list, i)
	}
	return list
}

func costUpdate(c Call) Cost { return Cost{Flops: 15 * float64(c.In[0].Shape.Elements())} }

// left copies what an update leaves as it is, and says whether it does.
func skipped(c Call, in, out []Array) bool {
	if in[len(in)-1].F[0] > 0 {
		return false
	}
	copy(out[0].F, in[0].F)
	for i := 2; i < len(in)-1; i++ {
		copy(out[i-1].F, in[i].F)
	}
	copyWeight(c, out)
	return true
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// finishWeight rounds a new weight that is kept in bf16, or makes the copy of one in f32.
func storeWeight(c Call, out []Array, args Args) {
	if c.Out[0].DType == dtype.BF16 {
		for i, f := range out[0].F {
			out[0].F[i] = float64(dtype.FromBF16(RoundStochastic(float32(f), args.Key, args.Row+uint64(i))))
		}
	}
	copyWeight(c, out)
}

func copyWeight(c Call, out []Array) {
	if c.Attr.To != dtype.Invalid {
		copy(out[len(out)-1].F, out[0].F)
	}
}

func scalarArgs(args Args) (a [MaxScalars]float64) {
	for i, f := range args.Scalars {
		a[i] = float64(f)
	}
	return a
}
