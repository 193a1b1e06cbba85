package op

import (
	"fmt"
	"math"

	"spillway/dtype"
	"spillway/quant"
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

// ClipScale: from partial sums of squares of gradients times a loss scale F[1] (0
// counts as 1) the norm of the gradients themselves, and the factor that takes the
// scale off and clips: min(1, F[0]/(norm + 1e-6))/F[1]; F[0] ≤ 0 clips nothing. Where
// the norm is infinite or not a number the factor is 0, which tells updates to leave
// everything as it is.
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

// Scalars of Adam, SGD and Lion in Args.F.
const (
	ArgRate  = 0 // learning rate
	ArgDecay = 1 // weight decay
	ArgBeta1 = 2 // Adam: decay of the mean; SGD: momentum; Lion: share of m in the step
	ArgBeta2 = 3 // Adam: decay of the square; SGD: dampening; Lion: decay of m
	ArgEps   = 4
	ArgBias1 = 5 // 1 - beta1^t; SGD: 1 on the first iteration, else 0
	ArgBias2 = 6 // sqrt(1 - beta2^t)

	ArgMaxNorm = 0 // ClipScale
	ArgScale   = 1 // ClipScale: what the loss was multiplied by
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
func inferAdam(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 5); err != nil {
		return nil, err
	}
	return updated(a, in, state{2, quant.Dyn8}, state{3, quant.UDyn8})
}

// SGD updates in place, the gradient multiplied by clip[0] and decay·w added. With
// momentum, m = momentum·m + (1 - dampening)·g, but m = g on the first iteration,
// and the step is m, or g + momentum·m with Nesterov. Without m there is no momentum
// and the step is g; with an m and a momentum of 0 too, and m stays untouched.
// w -= rate·step.
//
//	operands  w [n] f32 or bf16, g [n], m [n] as State says or nothing, clip [2] f32
//	outputs   w, m if there is one, and the low-precision copy of w when Attr.To is set
func inferSGD(a Attr, in []Type) ([]Type, error) {
	if len(in) == 3 {
		return updated(a, in)
	}
	if err := arity(in, 4); err != nil {
		return nil, err
	}
	return updated(a, in, state{2, quant.Dyn8})
}

// Lion updates in place with steps of one size, the sign of a mean. The gradient is
// multiplied by clip[0]; then
//
//	w *= 1 - rate·decay
//	w -= rate·sign(beta1·m + (1 - beta1)·g)
//	m = beta2·m + (1 - beta2)·g
//
//	operands  w [n] f32 or bf16, g [n], m [n] as State says, clip [2] f32
//	outputs   w, m, and the low-precision copy of w when Attr.To is set
func inferLion(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 4); err != nil {
		return nil, err
	}
	return updated(a, in, state{2, quant.Dyn8})
}

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

func costUpdate(c Call) Cost { return Cost{Flops: 15 * float64(c.In[0].Shape.Elements())} }

func referenceSumSquares(c Call, in, out []Array, _ Args) {
	out[0].F[0] = dot(in[0].F, in[0].F)
}

func referenceClipScale(c Call, in, out []Array, args Args) {
	var sum float64
	for _, f := range in[0].F {
		sum += f
	}
	scale := 1.0
	if f := float64(args.Scalars[ArgScale]); f != 0 {
		scale = f
	}
	norm, factor := math.Sqrt(sum)/scale, 1/scale
	if most := float64(args.Scalars[ArgMaxNorm]); most > 0 {
		factor = min(1, most/(norm+1e-6)) / scale
	}
	if !finite(norm) {
		factor = 0
	}
	out[0].F[0], out[0].F[1] = factor, norm
}

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

// momentumStep gives the step and the new m.
func momentumStep(nesterov bool, m, g float64, a [8]float64) (step, next float64) {
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

func scalarArgs(args Args) (a [8]float64) {
	for i, f := range args.Scalars {
		a[i] = float64(f)
	}
	return a
}
