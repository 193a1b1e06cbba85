package spillway

import (
	"fmt"

	"spillway/dtype"
	"spillway/graph"
	"spillway/nn"
	"spillway/op"
	"spillway/spec"
)

// Two micro-batches whose sizes have nothing in common tell which dimensions of a
// batch are samples and which are positions.
var (
	few  = sizes{2, 5}
	more = sizes{3, 7}
)

// traced is a model as it is before any batch is seen.
type traced struct {
	spec  *spec.Model // for the smallest micro-batch
	parts []part      // that a batch must have
}

// trace finds what a model reads when it does a task.
func (m *Model) trace(net nn.Model, task graph.Task, precision dtype.Type, packed bool) (traced, error) {
	of := func(s sizes) (*spec.Model, error) {
		return spec.Trace(m.Name, m.Info.Type, net, graph.Config{MicroBatchSize: s.samples, Seq: s.seq, DType: precision, Task: task, Packed: packed})
	}
	small, err := of(few)
	if err != nil {
		return traced{}, err
	}
	large, err := of(more)
	if err != nil {
		return traced{}, err
	}
	if len(small.Batch) != len(large.Batch) {
		return traced{}, fmt.Errorf("%s reads %d batch parts for micro-batches of %v and %d for %v; it must read the same of all", m.Name, len(small.Batch), few, len(large.Batch), more)
	}
	t := traced{spec: small}
	for i, p := range small.Batch {
		if p.Name == "scale" {
			continue // the loop's
		}
		dims, err := dimensions(p.Type, large.Batch[i].Type)
		if err != nil {
			return t, fmt.Errorf("batch part %s of %s: %w", p.Name, m.Name, err)
		}
		t.parts = append(t.parts, part{p.Name, p.Type.DType, dims})
	}
	return t, nil
}

// dimensions tells from the types of a part in two micro-batches what its dimensions are.
func dimensions(a, b op.Type) ([]dim, error) {
	if a.DType != dtype.F32 && a.DType != dtype.I32 {
		return nil, fmt.Errorf("it is %v; batches have f32 and i32", a.DType)
	}
	if len(a.Shape) != len(b.Shape) {
		return nil, fmt.Errorf("it is %v for micro-batches of %v and %v for %v", a, few, b, more)
	}
	dims := make([]dim, len(a.Shape))
	for i := range dims {
		switch from, to := a.Shape[i], b.Shape[i]; {
		case from == to:
			dims[i] = dim{size: from}
		case from == few.samples && to == more.samples && i == 0:
			dims[i] = dim{samples: true}
		case from == few.seq && to == more.seq:
			dims[i] = dim{seq: true}
		default:
			return nil, fmt.Errorf("dimension %d is %d for micro-batches of %v and %d for %v; it must be the number of samples, which comes first, the number of positions, or neither",
				i, from, few, to, more)
		}
	}
	return dims, nil
}
