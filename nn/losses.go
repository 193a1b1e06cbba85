package nn

import (
	"math"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
)

// Losses of one's own are traced expressions over values and tensors of the batch. Model code computes
// one number for each sample, or each element of a sample, and Mean makes the loss of it, which is that of the
// whole batch however many micro-batches it is cut into:
//
//	func(b *graph.Builder, in []graph.Value) []graph.Value {
//		if b.Task == graph.Infer {
//			return in
//		}
//		target := b.Part("depth", dtype.F32, b.MicroBatchSize, 64, 64)
//		return []graph.Value{nn.Mean(b, nn.Huber(b, in[0], target, 1))}
//	}

// Mean is the mean [1] of x over all its elements and all samples of the batch, whose number the first
// dimension of x is.
func Mean(b *graph.Builder, x graph.Value) graph.Value {
	t := b.TypeOf(x).Shape
	if b.Err() != nil {
		return 0
	}
	if len(t) == 0 || t[0] != b.MicroBatchSize {
		b.Fail("a mean over samples of %v, whose first dimension is not the %d samples of a micro-batch", t, b.MicroBatchSize)
		return 0
	}
	each := float64(t.Elements() / t[0])
	return b.Mul(b.Scale(b.Sum(b.Cast(x, dtype.F32)), 1/each), SampleScale(b))
}

// SampleScale [1] is 1 / the samples of the batch, counted over all micro-batches.
func SampleScale(b *graph.Builder) graph.Value { return b.Part(graph.SampleScalePart, dtype.F32, 1) }

// SquaredError, AbsoluteError, Huber and SmoothL1 are of each element, as PyTorch's with reduction none.
func SquaredError(b *graph.Builder, y, target graph.Value) graph.Value {
	return b.Unary(op.Square, difference(b, y, target))
}

// AbsoluteError is |y - target|.
func AbsoluteError(b *graph.Builder, y, target graph.Value) graph.Value {
	return b.Unary(op.Abs, difference(b, y, target))
}

// Huber is half the square of the difference up to delta, and a line beyond.
func Huber(b *graph.Builder, y, target graph.Value, delta float64) graph.Value {
	if !(delta > 0) {
		b.Fail("huber: a delta of %v; it is above 0, and 1 in PyTorch", delta)
		return 0
	}
	d := difference(b, y, target)
	near := b.Clamp(b.Unary(op.Abs, d), 0, delta) // |d| up to delta
	return b.Plus(b.Scale(b.Unary(op.Square, near), 0.5), b.Scale(b.Sub(b.Unary(op.Abs, d), near), delta))
}

// SmoothL1 is Huber divided by beta.
func SmoothL1(b *graph.Builder, y, target graph.Value, beta float64) graph.Value {
	if beta == 0 {
		return AbsoluteError(b, y, target)
	}
	if !(beta > 0) {
		b.Fail("smooth_l1: a beta of %v; it is 0 or more, and 1 in PyTorch", beta)
		return 0
	}
	return b.Scale(Huber(b, y, target, beta), 1/beta)
}

func difference(b *graph.Builder, y, target graph.Value) graph.Value {
	return b.Sub(b.Cast(y, dtype.F32), b.Cast(target, dtype.F32))
}

// BCEWithLogits is the binary cross-entropy of logits, of each element; targets are from 0 to 1. posWeight, of the
// last dimension, weights positive targets; nil for none.
func BCEWithLogits(b *graph.Builder, y, target graph.Value, posWeight []float32) graph.Value {
	y, target = b.Cast(y, dtype.F32), b.Cast(target, dtype.F32)
	loss := b.Unary(op.LogSigmoid, y) // log p; log (1-p) = log p - y
	if posWeight == nil {
		return b.Sub(b.Times(b.Sub(one(b), target), y), loss)
	}
	if n := b.TypeOf(y).Shape.Last(); int64(len(posWeight)) != n && b.Err() == nil {
		b.Fail("%d weights of positive targets, and there are %d", len(posWeight), n)
		return 0
	}
	less := make([]float32, len(posWeight))
	for i, w := range posWeight {
		less[i] = w - 1
	}
	weight := b.Plus(one(b), b.Times(target, b.Floats("pos_weight", less)))
	return b.Sub(b.Times(b.Sub(one(b), target), y), b.Times(weight, loss))
}

// BCE is the binary cross-entropy of probabilities, of each element. Logarithms are at least -100.
func BCE(b *graph.Builder, p, target graph.Value) graph.Value {
	p, target = b.Cast(p, dtype.F32), b.Cast(target, dtype.F32)
	least := math.Exp(-100)
	yes := b.Unary(op.Log, b.Clamp(p, least, 1))
	no := b.Unary(op.Log, b.Clamp(b.Sub(one(b), p), least, 1))
	return b.Scale(b.Plus(b.Times(target, yes), b.Times(b.Sub(one(b), target), no)), -1)
}

func one(b *graph.Builder) graph.Value { return b.Floats("one", []float32{1}) }

// CrossEntropyOptions are those of PyTorch's cross_entropy.
type CrossEntropyOptions struct {
	Weights   []float32 // by class; nil for none
	Smoothing float64   // label_smoothing
}

// CrossEntropyOf is the cross-entropy [1] of logits [.. C] against batch part "targets" [..], of which
// op.IgnoreIndex counts for nothing. With weights it is divided by the sum of the weights of the targets, and a batch must be
// one micro-batch. CrossEntropyEach takes targets of any name.
func CrossEntropyOf(b *graph.Builder, logits graph.Value, o CrossEntropyOptions) graph.Value {
	s := b.TypeOf(logits).Shape
	if b.Err() != nil {
		return 0
	}
	rows, weight, counts := crossEntropies(b, logits, targets(b, s[:len(s)-1]), o)
	loss := b.Sum(rows)
	if o.Weights != nil { // the scale divides by the number of targets
		b.NeedWholeBatch() // the sum is over all targets
		total := b.Maximum(b.Sum(weight), b.Floats("least", []float32{1e-30}))
		loss = b.Div(b.Times(loss, b.Sum(counts)), total)
	}
	return b.Mul(loss, scale(b))
}

// CrossEntropyEach is the cross-entropy [..] of each row of logits [.. C] against targets [..] i32, PyTorch's with reduction none: 0 for
// op.IgnoreIndex. Mean over it divides by all targets, ignored ones too.
func CrossEntropyEach(b *graph.Builder, logits, targets graph.Value, o CrossEntropyOptions) graph.Value {
	rows, _, _ := crossEntropies(b, logits, targets, o)
	return b.Reshape(rows, b.TypeOf(targets).Shape...)
}

// crossEntropies are those of all rows [N], with the weight of each and whether it counts.
func crossEntropies(b *graph.Builder, logits, targets graph.Value, o CrossEntropyOptions) (loss, weight, counts graph.Value) {
	s, t := b.TypeOf(logits).Shape, b.TypeOf(targets).Shape
	if b.Err() != nil || len(s) == 0 || !t.Equal(s[:len(s)-1]) {
		b.Fail("cross_entropy: of logits %v and targets %v; it takes [.. C] and [..]", b.TypeOf(logits), b.TypeOf(targets))
		return 0, 0, 0
	}
	classes, rows := s.Last(), s.Rows()
	if o.Weights != nil && int64(len(o.Weights)) != classes || !(o.Smoothing >= 0 && o.Smoothing <= 1) {
		b.Fail("cross_entropy: of %d classes with %d weights and a smoothing of %v; it takes a weight for each class or none, and 0 to 1", classes, len(o.Weights), o.Smoothing)
		return 0, 0, 0
	}
	ids, counts := countedTargets(b, b.Reshape(targets, rows), classes)
	logp := b.LogSoftmax(b.Cast(b.Reshape(logits, rows, classes), dtype.F32), -1)
	picked := b.Reshape(b.Gather(logp, -1, b.Reshape(ids, rows, 1)), rows)
	weight = counts
	if o.Weights != nil {
		table := b.Floats("class weights", o.Weights)
		weight = b.Times(counts, b.Reshape(b.Embedding(ids, b.Reshape(table, classes, 1)), rows))
		if o.Smoothing > 0 {
			logp = b.Times(logp, table)
		}
	}
	loss = b.Scale(b.Times(weight, picked), -(1 - o.Smoothing))
	if o.Smoothing > 0 {
		loss = b.Sub(loss, b.Scale(b.Times(counts, b.Sum(logp, -1)), o.Smoothing/float64(classes)))
	}
	return loss, weight, counts
}

// countedTargets are ids with 0 for ignored ones, and 1 or 0 for whether they count.
func countedTargets(b *graph.Builder, ids graph.Value, classes int64) (safe, counts graph.Value) {
	out := b.Apply(op.Counted, op.Attr{Length: classes}, ids)
	return out[0], out[1]
}

// SequenceLogProb is the log-probability [N] of each row of targets [N T] under logits [N T V]; ignored ones
// count for nothing.
func SequenceLogProb(b *graph.Builder, logits, targets graph.Value) graph.Value {
	s := b.TypeOf(logits).Shape
	if b.Err() != nil || len(s) != 3 {
		b.Fail("log-probabilities of sequences from %v, want [N T V]", s)
		return 0
	}
	ids, counts := countedTargets(b, targets, s[2])
	picked := b.Gather(b.LogSoftmax(b.Cast(logits, dtype.F32), -1), -1, b.Reshape(ids, s[0], s[1], 1))
	return b.Sum(b.Times(counts, b.Reshape(picked, s[0], s[1])), -1)
}

// Distillation is the Kullback-Leibler divergence of a student's logits [.. C] from a teacher's at a temperature, by
// row [..], multiplied by the square of the temperature.
func Distillation(b *graph.Builder, student, teacher graph.Value, temperature float64) graph.Value {
	if !(temperature > 0) {
		b.Fail("distillation: a temperature of %v; it must be above 0", temperature)
		return 0
	}
	soft := func(x graph.Value) graph.Value {
		return b.LogSoftmax(b.Scale(b.Cast(x, dtype.F32), 1/temperature), -1)
	}
	s, t := soft(student), soft(teacher)
	return b.Scale(b.Sum(b.Times(b.Unary(op.Exp, t), b.Sub(t, s)), -1), temperature*temperature)
}

// Contrastive is the loss [1] of CLIP: rows of x and y [B D], which it makes of length 1, belong together one by one, and all
// others of the batch do not. logitScale [1] multiplies the cosines. A batch must be one micro-batch.
func Contrastive(b *graph.Builder, x, y, logitScale graph.Value) graph.Value {
	b.NeedWholeBatch()
	unit := func(v graph.Value) graph.Value {
		v = b.Cast(v, dtype.F32)
		return b.Div(v, b.Unary(op.Sqrt, b.Reduce(op.ReduceSum, b.Unary(op.Square, v), true, -1)))
	}
	x, y = unit(x), unit(y)
	n := b.MicroBatchSize
	own := b.Reshape(b.Times(b.Sum(b.Times(x, y), -1), logitScale), n)
	by := func(x, y graph.Value) graph.Value { // each of x among all of y
		return b.Sub(b.LogSumExp(b.Times(b.Linear(x, y, 0), logitScale), -1), own)
	}
	return Mean(b, b.Scale(b.Plus(by(x, y), by(y, x)), 0.5))
}

// FlowPoint is where a flow-matching model is asked: (1-t)·noise + t·data [B dims..], from batch parts "data" and
// "noise" [B dims..] and "time" [B].
func FlowPoint(b *graph.Builder, dims ...int64) graph.Value {
	data, noise := flowEnds(b, dims)
	t := make([]int64, len(dims)+1)
	for i := range t {
		t[i] = 1
	}
	t[0] = b.MicroBatchSize
	time := b.Reshape(b.Part("time", dtype.F32, b.MicroBatchSize), t...)
	return b.Cast(b.Plus(noise, b.Times(time, b.Sub(data, noise))), b.DType)
}

// FlowLoss [1] is the mean squared difference of a velocity [B dims..] from data - noise.
func FlowLoss(b *graph.Builder, velocity graph.Value) graph.Value {
	s := b.TypeOf(velocity).Shape
	if b.Err() != nil || len(s) == 0 {
		b.Fail("flow loss: the velocity is %v with %d dimensions; it takes [B dims..]", b.TypeOf(velocity), len(s))
		return 0
	}
	data, noise := flowEnds(b, s[1:])
	return Mean(b, SquaredError(b, velocity, b.Sub(data, noise)))
}

func flowEnds(b *graph.Builder, dims []int64) (data, noise graph.Value) {
	s := append([]int64{b.MicroBatchSize}, dims...)
	return b.Part("data", dtype.F32, s...), b.Part("noise", dtype.F32, s...)
}

// DPO is the loss of direct preference optimization by pair [B]: of the log-probabilities of the chosen and the rejected
// answer under the model and under the reference, all [B].
func DPO(b *graph.Builder, chosen, rejected, chosenReference, rejectedReference graph.Value, beta, smoothing float64) graph.Value {
	if !(smoothing >= 0 && smoothing <= 1) {
		b.Fail("dpo: a smoothing of %v; it is from 0 to 1, and mostly below 0.5", smoothing)
		return 0
	}
	margin := b.Scale(b.Sub(b.Sub(chosen, rejected), b.Sub(chosenReference, rejectedReference)), beta)
	loss := b.Scale(b.Unary(op.LogSigmoid, margin), -(1 - smoothing))
	if smoothing > 0 {
		loss = b.Sub(loss, b.Scale(b.Unary(op.LogSigmoid, b.Scale(margin, -1)), smoothing))
	}
	return loss
}
