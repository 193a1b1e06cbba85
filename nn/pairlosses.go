package nn

import (
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
)

// Losses that compare outputs with each other or with distributions; of each sample or element, as PyTorch's with reduction none.

// TripletMargin is how much nearer than the negative the positive is to the anchor, all [B D], less than by the margin: [B].
func TripletMargin(b *graph.Builder, anchor, positive, negative graph.Value, margin float64) graph.Value {
	if !(margin > 0) {
		b.Fail("triplet margin: a margin of %v; it must be above 0", margin)
		return 0
	}
	distance := func(x graph.Value) graph.Value { // PyTorch adds the 1e-6
		return b.Norm(b.PlusConstant(difference(b, anchor, x), 1e-6), -1)
	}
	return positivePart(b, b.PlusConstant(b.Sub(distance(positive), distance(negative)), margin))
}

// CosineEmbedding is 1 less the cosine of x and y [B D] where target [B] is 1, and what the cosine is above the margin where it is -1.
func CosineEmbedding(b *graph.Builder, x, y, target graph.Value, margin float64) graph.Value {
	x, y, target = b.Cast(x, dtype.F32), b.Cast(y, dtype.F32), b.Cast(target, dtype.F32)
	square := func(v graph.Value) graph.Value {
		return b.PlusConstant(b.Sum(b.Unary(op.Square, v), -1), 1e-12)
	}
	cosine := b.Div(b.Sum(b.Times(x, y), -1), b.Unary(op.Sqrt, b.Times(square(x), square(y))))
	return b.Where(b.Compare(op.Greater, target, b.Number(target, 0)), b.Sub(one(b), cosine), positivePart(b, b.PlusConstant(cosine, -margin)))
}

// MarginRanking is how much less than by the margin x is above y where target is 1, and below it where it is -1.
func MarginRanking(b *graph.Builder, x, y, target graph.Value, margin float64) graph.Value {
	return positivePart(b, b.PlusConstant(b.Times(b.Scale(b.Cast(target, dtype.F32), -1), difference(b, x, y)), margin))
}

func positivePart(b *graph.Builder, x graph.Value) graph.Value { return b.Unary(op.ReLU, x) }

// KLDivergence is target·(log target - logp), for a logp and a target in logarithms, of each element: PyTorch's kl_div with log_target.
// Its batchmean is Mean of the sum over the last axis. See Distillation for logits.
func KLDivergence(b *graph.Builder, logp, logTarget graph.Value) graph.Value {
	logTarget = b.Cast(logTarget, dtype.F32)
	return b.Times(b.Unary(op.Exp, logTarget), b.Sub(logTarget, b.Cast(logp, dtype.F32)))
}

// GaussianNLL is the negative log-likelihood of a target under a normal distribution, without its constant; a variance is at least eps,
// 1e-6 in PyTorch.
func GaussianNLL(b *graph.Builder, mean, target, variance graph.Value, eps float64) graph.Value {
	variance = b.Cast(variance, dtype.F32)
	low := b.Compare(op.Less, variance, b.Number(variance, eps))
	variance = b.Plus(variance, b.Detach(b.Binary(op.If, low, b.Sub(b.Number(variance, eps), variance)))) // with the gradient of the variance
	return b.Scale(b.Plus(b.Unary(op.Log, variance), b.Div(b.Unary(op.Square, difference(b, mean, target)), variance)), 0.5)
}

// PoissonNLL is that of a target under a Poisson distribution whose rate's logarithm is given.
func PoissonNLL(b *graph.Builder, logRate, target graph.Value) graph.Value {
	logRate = b.Cast(logRate, dtype.F32)
	return b.Sub(b.Unary(op.Exp, logRate), b.Times(b.Cast(target, dtype.F32), logRate))
}
