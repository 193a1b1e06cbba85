package nn

import (
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/shape"
)

// The tensors of a batch, by name. All but scale and mask have the micro-batch size as first
// dimension B.

// Tokens are the ids [B T] of the text.
func Tokens(b *graph.Builder) graph.Value {
	return b.Part("tokens", dtype.I32, b.MicroBatchSize, b.Seq)
}

// Positions [B T] of the tokens in their documents.
func Positions(b *graph.Builder) graph.Value {
	return b.Part("positions", dtype.I32, b.MicroBatchSize, b.Seq)
}

// Segments [B T] number the documents packed into a sample; no value when samples
// hold one each.
func Segments(b *graph.Builder) graph.Value {
	if !b.Packed {
		return 0
	}
	return b.Part("segments", dtype.I32, b.MicroBatchSize, b.Seq)
}

// outputRows are the rows of x [B R D] that batch tensor "outputs" [B O] names, counted over all
// samples: position t of sample b is row b·R+t. They are all where a step of generation has no
// more of them, and where an inference is to give all.
func outputRows(b *graph.Builder, x graph.Value) graph.Value {
	if b.Task == graph.Infer && b.LogitsOf > 0 {
		return b.Embedding(b.Part("outputs", dtype.I32, b.MicroBatchSize, b.LogitsOf), x)
	}
	if b.Cache == nil || b.Seq <= b.Cache.Outputs {
		return x
	}
	return b.Embedding(b.Part("outputs", dtype.I32, 1, b.Cache.Outputs), x)
}

// drawn are tokens drawn from logits [1 O V] where a step of generation asks for them, else the logits.
func drawn(b *graph.Builder, logits graph.Value) graph.Value {
	if b.Cache == nil || !b.Cache.Draws || b.Err() != nil {
		return logits
	}
	rows := b.TypeOf(logits).Shape[1]
	return b.Apply(op.Sample, op.Attr{}, logits, b.Part("sampling", dtype.I32, 1, rows, op.SampleSettings))[0]
}

// Input are the numbers [B dims..] a plain model starts from, part "input" of the batch. A model that computes in 16
// bits has them rounded by the host, so that half of the bytes cross the link.
func Input(b *graph.Builder, dims ...int64) graph.Value {
	x := b.Part("input", dtype.F32, append([]int64{b.MicroBatchSize}, dims...)...)
	return b.Cast(x, b.DType)
}

// KeyMask [B T] is 0 where a position is padding, which no other may look at.
func KeyMask(b *graph.Builder) graph.Value {
	return b.Part("key_mask", dtype.I32, b.MicroBatchSize, b.Seq)
}

// Mask [T T] is added to the attention scores of query and key; -inf hides.
func Mask(b *graph.Builder) graph.Value { return b.Part("mask", dtype.F32, b.Seq, b.Seq) }

// targets are the right classes [dims..], op.IgnoreIndex where none counts. For a
// language model those of position t are the token t+1.
func targets(b *graph.Builder, dims shape.Shape) graph.Value {
	return b.Part("targets", dtype.I32, dims...)
}

// scale [1] is 1 / what the loss is the mean over, counted over all micro-batches
// of the iteration: targets that are not ignored, or numbers of the target.
func scale(b *graph.Builder) graph.Value { return b.Part(graph.ScalePart, dtype.F32, 1) }
