package nn

import (
	"spillway/dtype"
	"spillway/graph"
)

// NextToken ends a language model. Where the task is to infer or to generate it gives the logits
// [B T V] of x [B T D], or of the rows that are asked for. Else it gives the mean cross-entropy [1]
// of batch part "targets" [B T]; the logits are never held whole for it.
func NextToken(b *graph.Builder, x graph.Value, head *Linear) graph.Value {
	return head.last(b, x, func(x graph.Value) graph.Value {
		switch {
		case b.Task == graph.Infer || b.Task == graph.Generate:
			return drawn(b, head.matmul(b, outputRows(b, x)))
		case head.Bias != nil || head.Adapter != nil:
			b.Fail("the loss is fused with the head, which can have no bias or adapter")
			return 0
		}
		return b.LinearCrossEntropy(x, head.Weight.Value(b), targets(b, []int64{b.MicroBatchSize, b.Seq}), scale(b))
	})
}

// Loss is what a plain model is trained for.
type Loss string

// The losses.
const (
	// CrossEntropy of classes: logits [.. C] against batch part "targets" [..].
	CrossEntropy Loss = "cross_entropy"
	// MeanSquare of the difference to batch part "target", of the output's shape.
	MeanSquare Loss = "mean_square"
	// MeanAbsolute, HuberLoss with delta 1 and BinaryCrossEntropy of logits are of batch part "target" too.
	MeanAbsolute       Loss = "l1"
	HuberLoss          Loss = "huber"
	BinaryCrossEntropy Loss = "bce_with_logits"
)

// elementLosses are those that are a mean over elements.
var elementLosses = map[Loss]func(b *graph.Builder, y, target graph.Value) graph.Value{
	MeanAbsolute:       AbsoluteError,
	HuberLoss:          func(b *graph.Builder, y, target graph.Value) graph.Value { return Huber(b, y, target, 1) },
	BinaryCrossEntropy: func(b *graph.Builder, y, target graph.Value) graph.Value { return BCEWithLogits(b, y, target, nil) },
}

// Forward ends a plain model: y itself where the task is to infer, else the loss [1].
func (l Loss) Forward(b *graph.Builder, y graph.Value) graph.Value {
	if b.Task == graph.Infer || b.Err() != nil {
		return y
	}
	if b.Task == graph.Generate {
		b.Fail("a model that ends in a loss by %s gives no logits of a next token; it cannot generate", l)
		return 0
	}
	t := b.TypeOf(y).Shape
	switch {
	case len(t) == 0:
		b.Fail("the model ends with no value, which has no %s", l)
		return 0
	case l == CrossEntropy:
		return b.CrossEntropy(y, targets(b, t[:len(t)-1]), scale(b))
	case l == MeanSquare:
		y = b.Cast(y, dtype.F32)
		return b.MeanSquare(y, b.Part("target", dtype.F32, t...), scale(b))
	}
	if each := elementLosses[l]; each != nil {
		return b.Mul(b.Sum(each(b, y, b.Part("target", dtype.F32, t...))), scale(b))
	}
	b.Fail("the model has the loss %q, want one of %q, or a function of one's own at its end", l, []Loss{CrossEntropy, MeanSquare, MeanAbsolute, HuberLoss, BinaryCrossEntropy})
	return 0
}
