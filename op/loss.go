package op

import (
	"fmt"
	"math"
)

// IgnoreIndex is the target that counts for nothing.
const IgnoreIndex = -100

func init() {
	Register(Op{Kind: LinearCrossEntropy, Takes: 4, Infer: inferLinearCrossEntropy, Cost: costLinearCrossEntropy, Reference: referenceLinearCrossEntropy,
		Sizes: linearLossSizes, Workspace: linearLossWorkspace, IDs: linearLossTargets, Cases: (*CaseList).losses})
	Register(Op{Kind: LinearCrossEntropyGrad, Takes: 5, Infer: inferLinearCrossEntropyGrad, Cost: costLinearCrossEntropyGrad, Reference: referenceLinearCrossEntropyGrad,
		Sizes: linearLossSizes, Workspace: linearLossWorkspace, IDs: linearLossTargets, Accumulates: linearLossParams})
	Register(Op{Kind: CrossEntropy, Takes: 3, Infer: inferCrossEntropy, Cost: costCrossEntropy, Reference: referenceCrossEntropy, IDs: lossTargets})
	Register(Op{Kind: CrossEntropyGrad, Takes: 4, Infer: inferCrossEntropyGrad, Cost: costCrossEntropy, Reference: referenceCrossEntropyGrad, IDs: lossTargets})
	Register(Op{Kind: MeanSquare, Takes: 3, Infer: inferMeanSquare, Cost: costCrossEntropy, Reference: referenceMeanSquare})
	Register(Op{Kind: MeanSquareGrad, Takes: 4, Infer: inferMeanSquareGrad, Reference: referenceMeanSquareGrad})
}

// linearLossParams: the third output, behind loss and dx, is the gradient of the weight.
func linearLossParams(a Attr) []int {
	if a.InputOnly {
		return nil
	}
	return []int{2}
}

// linearLossSizes are rows, vocabulary and width.
func linearLossSizes(c Call) [3]int64 {
	return [3]int64{c.In[0].Shape.Rows(), c.In[1].Shape[0], c.In[1].Shape[1]}
}

// linearLossRows is how many rows of logits a fused loss holds at once, in f32.
const linearLossRows = 1024

func linearLossWorkspace(c Call) int64 {
	return min(c.In[0].Shape.Rows(), linearLossRows) * c.In[1].Shape[0] * 4
}

func linearLossTargets(c Call) IDs {
	return IDs{Operand: 2, Count: c.In[1].Shape[0], AllowsIgnored: true}
}

func lossTargets(c Call) IDs {
	return IDs{Operand: 1, Count: c.In[0].Shape.Last(), AllowsIgnored: true}
}

// LinearCrossEntropy: scale · Σ -log softmax(x·Wᵀ)[target] over rows whose target
// is not Ignored. The logits are never held whole.
//
//	operands  x [N D], W [V D], targets [N] i32, scale [1] f32
//	output    loss [1] f32
const LinearCrossEntropy Kind = "linear_cross_entropy"

func inferLinearCrossEntropy(a Attr, in []Type) ([]Type, error) {
	return []Type{scalar32}, linearLossOperands(in)
}

// LinearCrossEntropyGrad: operands x, W, targets, scale, dloss [1]; outputs loss,
// dx, dW. It computes the loss too, in the same pass over the logits, so that
// training never runs LinearCrossEntropy.
const LinearCrossEntropyGrad Kind = "linear_cross_entropy_grad"

func inferLinearCrossEntropyGrad(a Attr, in []Type) ([]Type, error) {
	out := []Type{scalar32, in[0], in[1]}[:2+len(linearLossParams(a))]
	return out, check(linearLossOperands(in), scalars(in, 4))
}

func linearLossOperands(in []Type) error {
	if err := check(float(in, 0, 1), ids(in, 2), scalars(in, 3), rank(in, 0, 2)); err != nil {
		return err
	}
	if len(in[1].Shape) != 2 || in[1].Shape.Last() != in[0].Shape.Last() || in[0].DType != in[1].DType {
		return fmt.Errorf("%v times the transpose of %v", in[0], in[1])
	}
	return rowsMatch(in, 2)
}

// rowsMatch refuses targets (operand t) that are not one per row.
func rowsMatch(in []Type, t int) error {
	if in[t].Shape.Elements() != in[0].Shape.Rows() {
		return fmt.Errorf("%v targets for %d rows", in[t], in[0].Shape.Rows())
	}
	return nil
}

// CrossEntropy: the same from given logits.
//
//	operands  logits [N V], targets [N] i32, scale [1]
//	output    loss [1]
const CrossEntropy Kind = "cross_entropy"

func inferCrossEntropy(a Attr, in []Type) ([]Type, error) {
	return []Type{scalar32}, check(float(in, 0), ids(in, 1), scalars(in, 2), rank(in, 0, 2), rowsMatch(in, 1))
}

// CrossEntropyGrad: operands logits, targets, scale, dloss; output dlogits.
const CrossEntropyGrad Kind = "cross_entropy_grad"

func inferCrossEntropyGrad(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0]}, check(float(in, 0), ids(in, 1), scalars(in, 2, 3), rank(in, 0, 2), rowsMatch(in, 1))
}

// MeanSquare: scale · Σ (x - target)².
//
//	operands  x, target, scale [1]
//	output    loss [1]
const MeanSquare Kind = "mean_square"

func inferMeanSquare(a Attr, in []Type) ([]Type, error) {
	return []Type{scalar32}, check(float(in, 0), same(in, 0, 1), scalars(in, 2))
}

// MeanSquareGrad: operands x, target, scale, dloss; output dx.
const MeanSquareGrad Kind = "mean_square_grad"

func inferMeanSquareGrad(a Attr, in []Type) ([]Type, error) {
	return []Type{in[0]}, check(float(in, 0), same(in, 0, 1), scalars(in, 2, 3))
}

func linearLossFlops(c Call) float64 {
	return 2 * float64(c.In[0].Shape.Elements()) * float64(c.In[1].Shape[0])
}

func costLinearCrossEntropy(c Call) Cost {
	return Cost{Flops: linearLossFlops(c), Matrix: true}
}

func costLinearCrossEntropyGrad(c Call) Cost {
	matmuls := 3.0
	if c.Attr.InputOnly {
		matmuls = 2
	}
	return Cost{Flops: matmuls * linearLossFlops(c), Matrix: true}
}

func costCrossEntropy(c Call) Cost { return Cost{Flops: 4 * float64(c.In[0].Shape.Elements())} }

func referenceLinearCrossEntropy(c Call, in, out []Array, _ Args) {
	targets, scale := in[2].I, in[3].F[0]
	var sum float64
	for n, x := range rows(in[0].F, c.In[0].Shape.Last()) {
		sum += rowLoss(logits(x, in[1]), targets[n])
	}
	out[0].F[0] = scale * sum
}

func referenceLinearCrossEntropyGrad(c Call, in, out []Array, _ Args) {
	referenceLinearCrossEntropy(c, in[:4], out[:1], Args{})
	width := c.In[0].Shape.Last()
	dw := make([]float64, len(in[1].F))
	w, dx, dws := rows(in[1].F, width), rows(out[1].F, width), rows(dw, width)
	clear(out[1].F)
	for n, x := range rows(in[0].F, width) {
		logits := logits(x, in[1])
		for v, d := range rowLossGrad(logits, in[2].I[n], in[3].F[0]*in[4].F[0]) {
			axpy(d, w[v], dx[n])
			axpy(d, x, dws[v])
		}
	}
	if !c.Attr.InputOnly {
		copy(out[2].F, dw)
	}
}

// logits of x with each row of w.
func logits(x []float64, w Array) []float64 {
	logits := make([]float64, 0, w.Type.Shape[0])
	for _, row := range rows(w.F, int64(len(x))) {
		logits = append(logits, dot(x, row))
	}
	return logits
}

func referenceCrossEntropy(c Call, in, out []Array, _ Args) {
	var sum float64
	for n, logits := range rows(in[0].F, c.In[0].Shape.Last()) {
		sum += rowLoss(logits, in[1].I[n])
	}
	out[0].F[0] = in[2].F[0] * sum
}

func referenceCrossEntropyGrad(c Call, in, out []Array, _ Args) {
	v := c.In[0].Shape.Last()
	dx := rows(out[0].F, v)
	for n, logits := range rows(in[0].F, v) {
		copy(dx[n], rowLossGrad(logits, in[1].I[n], in[2].F[0]*in[3].F[0]))
	}
}

// rowLoss is -log softmax(logits)[target].
func rowLoss(logits []float64, target int32) float64 {
	if target == IgnoreIndex {
		return 0
	}
	return logSumExp(logits) - logits[clamp(target, len(logits))]
}

// rowLossGrad is by·(softmax(logits) - onehot(target)).
func rowLossGrad(logits []float64, target int32, by float64) []float64 {
	d := make([]float64, len(logits))
	if target == IgnoreIndex {
		return d
	}
	total := logSumExp(logits)
	for v, f := range logits {
		d[v] = by * math.Exp(f-total)
	}
	d[clamp(target, len(logits))] -= by
	return d
}

func referenceMeanSquare(c Call, in, out []Array, _ Args) {
	var sum float64
	for i, x := range in[0].F {
		sum += (x - in[1].F[i]) * (x - in[1].F[i])
	}
	out[0].F[0] = in[2].F[0] * sum
}

func referenceMeanSquareGrad(c Call, in, out []Array, _ Args) {
	for i, x := range in[0].F {
		out[0].F[i] = 2 * in[2].F[0] * in[3].F[0] * (x - in[1].F[i])
	}
}

// targets are classes, every third one ignored if some are.
func targets(classes int, some bool, dims ...int) Operand {
	return Integers(func(i int, u float64) int32 {
		if some && i%3 == 1 {
			return IgnoreIndex
		}
		return int32(u * float64(classes))
	}, dims...)
}

func (l *CaseList) losses() {
	scale, seed := Numbers(0.25), Numbers(1.5)
	ignored := Integers(func(int, float64) int32 { return IgnoreIndex }, 4)
	l.linearLoss("9x6x11", l.X(9, 6), l.X(11, 6), targets(11, true, 9), false)
	l.linearLoss("samples", l.X(2, 4, 6), l.X(7, 6), targets(7, false, 2, 4), false)
	l.linearLoss("1 row", l.X(1, 33), l.X(17, 33), targets(17, false, 1), false)
	l.linearLoss("1 class", l.X(3, 5), l.X(1, 5), targets(1, false, 3), false)
	l.linearLoss("all ignored", l.X(4, 5), l.X(9, 5), ignored, false)
	l.linearLoss("sure", l.Sized(8, 5, 16), l.Sized(8, 13, 16), targets(13, true, 5), false)
	l.linearLoss("67x33x1025", l.X(67, 33), l.X(1025, 33), targets(1025, true, 67), true)
	for _, c := range []struct {
		name           string
		logits, target Operand
	}{
		{"9x11", l.X(9, 11), targets(11, true, 9)},
		{"samples", l.Sized(4, 2, 4, 7), targets(7, true, 2, 4)},
		{"1 row", l.X(1, 129), targets(129, false, 1)},
		{"all ignored", l.X(4, 5), ignored},
		{"sure", l.Sized(60, 5, 13), targets(13, false, 5)},
	} {
		l.Add(c.name, CrossEntropy, Attr{}, c.logits, c.target, scale)
		l.Add(c.name, CrossEntropyGrad, Attr{}, c.logits, c.target, scale, seed)
	}
	for _, dims := range [][]int{{3, 7}, {1}, {2, 5, 33}} {
		x := l.X(dims...)
		name := x.Type.Shape.String()
		l.Add(name, MeanSquare, Attr{}, x, x, scale)
		l.Add(name, MeanSquareGrad, Attr{}, x, x, scale, seed)
	}
}

// linearLoss adds a loss and the forms of its gradient.
func (l *CaseList) linearLoss(name string, x, w, target Operand, big bool) {
	scale, seed := Numbers(0.25), Numbers(1.5)
	l.Add(name, LinearCrossEntropy, Attr{}, x, w, target, scale).Large = big
	for _, form := range []struct {
		name string
		attr Attr
	}{{"", Attr{}}, {" accumulate", Attr{Accumulate: true}}, {" input only", Attr{InputOnly: true}}} {
		l.Add(name+form.name, LinearCrossEntropyGrad, form.attr, x, w, target, scale, seed).Large = big
	}
}
