package nn

import (
	"math"

	"spillway/graph"
)

// Embedding looks rows of a table up.
type Embedding struct {
	Weight *Param `hf:"weight"` // [rows width]
}

// NewEmbedding starts as PyTorch's: standard normal.
func NewEmbedding(rows, width int64) *Embedding {
	return &Embedding{Weight: NewParam(Normal(1), rows, width)}
}

// Forward maps ids [..] i32 to [.. width]. Rows are looked up in the type the table is stored
// in and cast after that: they are few.
func (e *Embedding) Forward(b *graph.Builder, ids graph.Value) graph.Value {
	outer := b.DType
	if e.Weight.Storage.IsPlain() {
		defer func() { b.DType = outer }()
		b.DType = e.Weight.Storage
	}
	return b.Cast(b.Embedding(ids, e.Weight.Value(b)), outer)
}

// StableEmbedding is bitsandbytes' layer of the same name: an embedding that starts uniform and is followed by
// a norm. Its optimizer states are to be in f32: states_of=embeddings:f32.
type StableEmbedding struct {
	Embedding `hf:""`
	Norm      *LayerNorm `hf:"norm"`
}

// NewStableEmbedding starts as Xavier's uniform.
func NewStableEmbedding(rows, width int64) *StableEmbedding {
	bound := math.Sqrt(6 / float64(rows+width))
	return &StableEmbedding{Embedding{NewParam(Uniform(bound), rows, width)}, NewLayerNorm(width, 1e-5)}
}

// Forward maps ids [..] i32 to [.. width].
func (e *StableEmbedding) Forward(b *graph.Builder, ids graph.Value) graph.Value {
	return e.Norm.Forward(b, e.Embedding.Forward(b, ids))
}
