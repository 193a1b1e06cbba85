package nn

import (
	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/quant"
	"spillway/shape"
)

// Param is a named weight. A param reached from two fields is shared by them (tied)
// and has the name of the first.
type Param struct {
	Name  string // filled by Bind
	Shape shape.Shape
	Init  Init
	// Frozen: it gets no gradient and is never updated.
	Frozen bool
	// Momentum of a running statistic: an update moves it by this share of its gradient, which is how
	// far it is from the statistic of the batch, whatever the optimizer; 0 for weights.
	Momentum float64
	// AverageOf is the param that this running statistic follows by itself, see MovingAverage; nil for none.
	AverageOf *Param
	// Paused is Frozen for some plans only: a run that freezes params by name sets it.
	Paused bool
	// Storage is the element type it is stored in where that differs from the one the
	// model computes in: a block format (NF4) for the frozen base of QLoRA. Zero: as computed.
	Storage dtype.Type
	// OutlierThreshold is that of LLM.int8, for matmuls with a weight of RowI8; 0
	// multiplies by the dequantized weight.
	OutlierThreshold float64
}

// Init says how a param starts when it is not read from a file.
type Init struct {
	Dist  string  `json:"dist"`            // "normal", "uniform", "constant", or one of the magnitudes
	Scale float64 `json:"scale,omitempty"` // standard deviation, bound, the value, or the adapter's scale
	// Elements ZeroFrom to before ZeroTo start at 0 all the same: the row of an embedding's padding.
	ZeroFrom int64 `json:"zero_from,omitempty"`
	ZeroTo   int64 `json:"zero_to,omitempty"`
}

// How a DoRA magnitude starts: as the norm of each output's weights, which are a row of
// [out in] or a column of [in out].
const (
	RowMagnitudes    = "row_norms"
	ColumnMagnitudes = "column_norms"
)

// Magnitudes starts a DoRA magnitude as the norms of the adapted weights, with what the
// adapter adds to them at first.
func Magnitudes(scale float64, rows bool) Init {
	if rows {
		return Init{Dist: RowMagnitudes, Scale: scale}
	}
	return Init{Dist: ColumnMagnitudes, Scale: scale}
}

// Normal starts with mean 0 and the given standard deviation.
func Normal(std float64) Init { return Init{Dist: "normal", Scale: std} }

// Uniform starts between -bound and bound.
func Uniform(bound float64) Init { return Init{Dist: "uniform", Scale: bound} }

// Constant starts with one value everywhere.
func Constant(value float64) Init { return Init{Dist: "constant", Scale: value} }

// NewParam makes a trainable param.
func NewParam(init Init, dims ...int64) *Param {
	return &Param{Shape: dims, Init: init}
}

// Value is the param in a program, as numbers of the program's element type. A nil
// param is no value: an absent bias.
func (p *Param) Value(b *graph.Builder) graph.Value {
	switch {
	case p == nil:
		return 0
	case p.Name == "":
		b.Fail("a param of shape %v has no name: every field on the way to it needs an hf tag", p.Shape)
		return 0
	case p.Momentum > 0:
		return b.Cast(p.statistic(b), b.DType)
	case p.Storage == dtype.Invalid || p.Storage == b.DType:
		return b.Param(p.Name, op.Type{DType: b.DType, Shape: p.Shape}, p.Frozen || p.Paused)
	case p.Storage.Block() && !p.Frozen:
		b.Fail("param %s is stored as %v and not frozen: block formats cannot be trained", p.Name, p.Storage)
		return 0
	}
	w := b.Param(p.Name, op.Type{DType: p.Storage, Shape: p.Shape}, p.Frozen || p.Paused)
	if p.Storage.Block() {
		return b.Dequantize(w)
	}
	return b.Cast(w, b.DType)
}

// quantized is the param in its block format where the matmul should read it so: with few
// rows, when reading the weight takes longer than multiplying, for LLM.int8, and where its rows
// are interleaved for that matmul. Otherwise it is no value, and the weight is dequantized first.
func (p *Param) quantized(b *graph.Builder, x graph.Value) graph.Value {
	if p.Name == "" || !p.Storage.Block() || !p.Frozen || len(p.Shape) != 2 || b.Err() != nil {
		return 0
	}
	if few := b.TypeOf(x).Shape.Rows() <= fewRows; !few && p.OutlierThreshold == 0 && quant.InterleavedOf(p.Storage) == dtype.Invalid {
		return 0
	}
	return b.Param(p.Name, op.Type{DType: p.Storage, Shape: p.Shape}, true)
}

// fewRows is up to how many rows a quantized weight is decoded inside the matmul.
const fewRows = 16
