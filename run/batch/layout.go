package batch

import (
	"fmt"
	"slices"

	"spillway/dtype"
	"spillway/op"
	"spillway/spec"
)

// Layout is what a model reads of a batch for a task.
type Layout struct {
	Model *spec.Model // traced for a small micro-batch
	// WholeBatch: a batch must be one micro-batch.
	WholeBatch bool
	parts      []part
}

// part is one tensor of a batch.
type part struct {
	name string
	t    dtype.Type
	dims []dim
}

// dim is a dimension of a part: the number of sequences, the number of positions, or a
// size that the model fixes.
type dim struct {
	sequences, positions bool
	fixed                int64
}

// Two micro-batches whose sizes have nothing in common tell which dimensions are
// sequences and which are positions.
var (
	small = Size{2, 5}
	large = Size{3, 7}
)

// Trace finds what a model reads by tracing it for two sizes of a micro-batch.
func Trace(trace func(sequences, positions int64) (*spec.Model, error)) (Layout, error) {
	a, err := trace(small.Sequences, small.Positions)
	if err != nil {
		return Layout{}, tracing(small, err)
	}
	b, err := trace(large.Sequences, large.Positions)
	if err != nil {
		return Layout{}, tracing(large, err)
	}
	if len(a.Batch) != len(b.Batch) {
		return Layout{}, fmt.Errorf("%s reads %d tensors of micro-batches of %v and %d of %v; it must read the same of all", a.Name, len(a.Batch), small, len(b.Batch), large)
	}
	l := Layout{Model: a}
	for _, k := range a.Kinds {
		l.WholeBatch = l.WholeBatch || k.Program.WholeBatch
	}
	for i, p := range a.Batch {
		if p.Name == "scale" || p.Name == "sample_scale" {
			continue // the loop fills it in
		}
		dims, err := dimensions(p.Type, b.Batch[i].Type)
		if err != nil {
			return l, fmt.Errorf("batch tensor %s of %s: %w", p.Name, a.Name, err)
		}
		l.parts = append(l.parts, part{p.Name, p.Type.DType, dims})
	}
	return l, nil
}

// tracing says which sizes a model was tried with, which its author has not chosen.
func tracing(s Size, err error) error {
	return fmt.Errorf("%w (tried with %d samples of %d positions, which b.MicroBatchSize and b.Seq say)", err, s.Sequences, s.Positions)
}

// dimensions tells what the dimensions of a tensor are, from its types in the small and
// in the large micro-batch.
func dimensions(a, b op.Type) ([]dim, error) {
	if a.DType != dtype.F32 && a.DType != dtype.I32 && !isNarrow(a.DType) {
		return nil, fmt.Errorf("it is %v; batches have f32 and i32", a.DType)
	}
	if len(a.Shape) != len(b.Shape) {
		return nil, fmt.Errorf("it is %v for micro-batches of %v and %v for %v", a, small, b, large)
	}
	dims := make([]dim, len(a.Shape))
	for i := range dims {
		switch at, then := a.Shape[i], b.Shape[i]; {
		case at == then:
			dims[i] = dim{fixed: at}
		case at == small.Sequences && then == large.Sequences && i == 0:
			dims[i] = dim{sequences: true}
		case at == small.Positions && then == large.Positions:
			dims[i] = dim{positions: true}
		default:
			return nil, fmt.Errorf("dimension %d is %d for micro-batches of %v and %d for %v; it must be the number of sequences, which comes first, the number of positions, or neither",
				i, at, small, then, large)
		}
	}
	return dims, nil
}

// Reads says whether the model reads a tensor of this name.
func (l Layout) Reads(name string) bool {
	return slices.ContainsFunc(l.parts, func(p part) bool { return p.name == name })
}

// HasPositions says whether the number of positions matters to the model.
func (l Layout) HasPositions() bool {
	return slices.ContainsFunc(l.parts, func(p part) bool {
		return slices.ContainsFunc(p.dims, func(d dim) bool { return d.positions })
	})
}
