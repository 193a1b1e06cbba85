package nn

import "spillway/graph"

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
