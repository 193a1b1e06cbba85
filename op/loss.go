package op

import (
	"fmt"
	"math"
)

// Ignored is the target that counts for nothing.
const IgnoreIndex = -100

// LinearCrossEntropy: scale · Σ -log softmax(x·Wᵀ)[target] over rows whose target
// is not Ignored. The logits are never held whole.
//
//	operands  x [N D], W [V D], targets [N] i32, scale [1] f32
//	output    loss [1] f32
func inferLinearCrossEntropy(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 4); err != nil {
		return nil, err
	}
	return []Type{scalar32}, linearLossOperands(in)
}

// LinearCrossEntropyGrad: operands x, W, targets, scale, dloss [1]; outputs loss,
// dx, dW. It computes the loss too, in the same pass over the logits, so that
// training never runs LinearCrossEntropy.
func inferLinearCrossEntropyGrad(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 5); err != nil {
		return nil, err
	}
	if err := check(linearLossOperands(in), scalars(in, 4)); err != nil {
		return nil, err
	}
	if a.InputOnly {
		return []Type{scalar32, in[0]}, nil
	}
	return []Type{scalar32, in[0], in[1]}, nil
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
func inferCrossEntropy(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 3); err != nil {
		return nil, err
	}
	return []Type{scalar32}, check(float(in, 0), ids(in, 1), scalars(in, 2), rank(in, 0, 2), rowsMatch(in, 1))
}

// CrossEntropyGrad: operands logits, targets, scale, dloss; output dlogits.
func inferCrossEntropyGrad(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 4); err != nil {
		return nil, err
	}
	return []Type{in[0]}, check(float(in, 0), ids(in, 1), scalars(in, 2, 3), rank(in, 0, 2), rowsMatch(in, 1))
}

// MeanSquare: scale · Σ (x - target)².
//
//	operands  x, target, scale [1]
//	output    loss [1]
func inferMeanSquare(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 3); err != nil {
		return nil, err
	}
	return []Type{scalar32}, check(float(in, 0), same(in, 0, 1), scalars(in, 2))
}

// MeanSquareGrad: operands x, target, scale, dloss; output dx.
func inferMeanSquareGrad(a Attr, in []Type) ([]Type, error) {
	if err := arity(in, 4); err != nil {
		return nil, err
	}
	return []Type{in[0]}, check(float(in, 0), same(in, 0, 1), scalars(in, 2, 3))
}

func linearLossFlops(c Call) float64 {
	return 2 * float64(c.In[0].Shape.Elements()) * float64(c.In[1].Shape[0])
}

func costLinearCrossEntropy(c Call) Cost {
	return Cost{Flops: linearLossFlops(c), Matrix: true}
}

func costLinearCrossEntropyGrad(c Call) Cost {
	products := 3.0
	if c.Attr.InputOnly {
		products = 2
	}
	return Cost{Flops: products * linearLossFlops(c), Matrix: true}
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

// products of x with each row of w.
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
