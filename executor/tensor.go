package executor

import (
	"fmt"

	"spillway/op"
	"spillway/plan"
)

// Tensor is a param, or one of its optimizer states, at its home.
type Tensor struct {
	Param plan.SlabParam
	// State is "" for the weight, Master, Gradient, or the name of a state.
	State string
	Type  op.Type
	// at are the buffers that hold it, in order: one, or one per piece.
	at []deviceBuffer
	// scales is how many of them come before the codes of a state in blocks.
	scales int
	// copies are the same bytes in replicas, written together.
	copies []deviceBuffer
}

// States besides those that an optimizer's rule names.
const (
	Master   = "master"   // the weight at full precision
	Gradient = "gradient" // seen by OnGradient alone
)

// Bytes of the tensor.
func (t Tensor) Bytes() int64 { return t.Type.Bytes() }

// Weights lists all params in order of their slabs.
func (e *Executor) Weights() []Tensor {
	var list []Tensor
	for _, s := range e.Plan().Slabs {
		for _, p := range s.Params {
			t := e.memory.tensor(p, "", p.Type, s.Weight, p.Offset)
			for _, id := range s.Replicas {
				t.copies = append(t.copies, e.memory.partOf(id, p.Offset, p.Type.Bytes()))
			}
			list = append(list, t)
		}
	}
	return list
}

func (m *memory) tensor(p plan.SlabParam, state string, t op.Type, in int, offset int64) Tensor {
	return Tensor{Param: p, State: state, Type: t, at: []deviceBuffer{m.partOf(in, offset, t.Bytes())}}
}

// Write fills a tensor; fill is given chunks in order, with the offset of each. Replicas
// are filled from the same calls.
func (e *Executor) Write(t Tensor, fill func(offset int64, chunk []byte) error) error {
	if t.State != Gradient { // whose update is what a flush would do
		if err := e.Flush(); err != nil {
			return err
		}
	}
	if err := t.eachChunk("filling", func(b deviceBuffer, off int64, bad *error) error {
		return e.memory.write(b, func(chunk []byte) { *bad = fill(off, chunk) })
	}); err != nil || len(t.copies) == 0 {
		return err
	}
	return e.Read(t, func(off int64, chunk []byte) error {
		for _, c := range t.copies {
			c.Offset, c.Bytes = c.Offset+off, int64(len(chunk))
			if err := e.memory.write(c, func(dst []byte) { copy(dst, chunk) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// Read gives the bytes of a tensor in chunks, in order, as they are after all updates.
func (e *Executor) Read(t Tensor, use func(offset int64, chunk []byte) error) error {
	if t.State != Gradient {
		if err := e.Flush(); err != nil {
			return err
		}
	}
	return t.eachChunk("reading", func(b deviceBuffer, off int64, bad *error) error {
		return e.memory.read(b, func(chunk []byte) { *bad = use(off, chunk) })
	})
}

// eachChunk visits a tensor in chunks: whole buffers where the host reaches them, else as
// much as the staging memory holds.
func (t Tensor) eachChunk(doing string, visit func(b deviceBuffer, off int64, bad *error) error) error {
	var off int64
	for _, at := range t.at {
		most := at.Bytes
		if at.Memory.Host() == nil {
			most = stagingBytes
		}
		for done := int64(0); done < at.Bytes; done += most {
			b := at
			b.Offset, b.Bytes = at.Offset+done, min(most, at.Bytes-done)
			var bad error
			err := visit(b, off, &bad)
			if bad != nil {
				return fmt.Errorf("%s %s: %w", doing, t.Param.Name, bad)
			}
			if err != nil {
				return err
			}
			off += b.Bytes
		}
	}
	return nil
}

// WriteConstants writes what programs expect to find: constants, and a clip factor of 1,
// or where updates are deferred 0, since none is pending yet.
func (e *Executor) WriteConstants() error {
	if err := e.awaitCarried(); err != nil {
		return err
	}
	for id, b := range e.Plan().Buffers {
		if b.Class != plan.Constant {
			continue
		}
		for _, c := range e.Plan().Consts {
			part := e.memory.partOf(id, c.Offset, int64(len(c.Data)))
			if err := e.memory.write(part, func(dst []byte) { copy(dst, c.Data) }); err != nil {
				return fmt.Errorf("constant %s: %w", c.Name, err)
			}
		}
	}
	if e.main.deferred {
		return e.setClip(0, 0)
	}
	return e.setClip(1, 0)
}
