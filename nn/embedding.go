package nn

import (
	"math"
	"slices"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
)

// Embedding looks rows of a table up.
type Embedding struct {
	Weight *Param `hf:"weight"` // [rows width]
	// padding is PyTorch's padding_idx: its row gets no gradient from being looked up. nil for none.
	padding *int64
}

// NewEmbedding starts as PyTorch's: standard normal.
func NewEmbedding(rows, width int64) *Embedding {
	return &Embedding{Weight: NewParam(Normal(1), rows, width)}
}

// WithPadding is the layer with PyTorch's padding_idx: the row of this id starts at zero and gets no gradient from being looked up.
func (e *Embedding) WithPadding(id int64) *Embedding {
	e.padding = &id
	width := e.Weight.Shape.Last()
	e.Weight.Init.ZeroFrom, e.Weight.Init.ZeroTo = id*width, (id+1)*width
	return e
}

// pads is 1 where ids [..] name the padding [.. 1], else 0.
func (e *Embedding) pads(b *graph.Builder, ids graph.Value, d dtype.Type) graph.Value {
	s := append(slices.Clone(b.TypeOf(ids).Shape), 1)
	of := b.Reshape(b.Cast(ids, dtype.F32), s...)
	return b.Cast(b.Compare(op.Equal, of, b.Number(of, float64(*e.padding))), d)
}

// Forward maps ids [..] i32 to [.. width]. Rows are looked up in the type the table is stored
// in and cast after that: they are few.
func (e *Embedding) Forward(b *graph.Builder, ids graph.Value) graph.Value {
	outer := b.DType
	if e.Weight.Storage.IsPlain() {
		defer func() { b.DType = outer }()
		b.DType = e.Weight.Storage
	}
	y := b.Embedding(ids, e.Weight.Value(b))
	if e.padding != nil {
		if rows := e.Weight.Shape.Rows(); *e.padding < 0 || *e.padding >= rows {
			b.Fail("%s: the padding %d of an embedding of %d rows; it is 0 to %d", op.Embedding, *e.padding, rows, rows-1)
			return 0
		}
		y = b.Where(e.pads(b, ids, b.TypeOf(y).DType), b.Detach(y), y)
	}
	return b.Cast(y, outer)
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
	return &StableEmbedding{Embedding{Weight: NewParam(Uniform(bound), rows, width)}, NewLayerNorm(width, 1e-5)}
}

// Forward maps ids [..] i32 to [.. width].
func (e *StableEmbedding) Forward(b *graph.Builder, ids graph.Value) graph.Value {
	return e.Norm.Forward(b, e.Embedding.Forward(b, ids))
}
