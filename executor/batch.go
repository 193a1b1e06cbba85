package executor

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"spillway/dtype"
	"spillway/graph"
	"spillway/plan"
)

// batch is what is known of what goes into an iteration and comes out.
type batch struct {
	writes int        // see BatchWrites
	result dtype.Type // of what the last block gives
	ids    []idCheck
}

// BatchTensor is a tensor of a micro-batch as bytes to be filled before Iterate, or before Upload while an
// iteration runs. It waits until what was there before is no longer read.
func (e *Executor) BatchTensor(micro int, name string) ([]byte, error) {
	if err := e.awaitBatchCopies(); err != nil {
		return nil, fmt.Errorf("the batch before: %w", err)
	}
	e.batch.writes++
	for _, t := range e.Plan().Batch {
		if t.Name != name {
			continue
		}
		home := e.memory.home(plan.BatchData, micro)
		if home == nil {
			return nil, fmt.Errorf("micro-batch %d of %d has no host memory", micro, e.Plan().MicroBatches)
		}
		return home[t.Offset : t.Offset+t.Type.Bytes()], nil
	}
	return nil, fmt.Errorf("batches have no tensor %q", name)
}

// BatchWrites counts the tensors of batches that were given to be filled: who put a batch in place for later finds it there if
// no other was put in place since.
func (e *Executor) BatchWrites() int { return e.batch.writes }

// Result of a micro-batch, valid until the next Iterate: the loss or the logits.
func (e *Executor) Result(micro int) []float32 {
	raw := e.memory.home(plan.ResultData, micro)
	switch e.batch.result {
	case dtype.BF16:
		return widen(raw, dtype.FromBF16)
	case dtype.F16:
		return widen(raw, dtype.FromF16)
	}
	return floats(raw)
}

// resultType is the element type of what the last block gives.
func resultType(p *plan.Plan) dtype.Type {
	for _, s := range p.Instructions {
		if _, ok := s.Bound(plan.OutResult, 0); ok {
			g := p.Programs[s.Program].Graph
			return g.Type(graph.Ports(g.Outputs, graph.Result)[0].Value).DType
		}
	}
	return dtype.Invalid
}

func widen(raw []byte, from func(uint16) float32) []float32 {
	out := make([]float32, len(raw)/2)
	for i := range out {
		out[i] = from(binary.LittleEndian.Uint16(raw[2*i:]))
	}
	return out
}

// Loss is the sum of the micro-batches' losses, in order.
func (e *Executor) Loss() float64 {
	var sum float64
	for j := range e.Plan().MicroBatches {
		if r := e.Result(j); len(r) > 0 {
			sum += float64(r[0])
		}
	}
	return sum
}

// floats views bytes of an arena, which is aligned, as numbers.
func floats(b []byte) []float32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
