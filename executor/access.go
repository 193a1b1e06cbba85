package executor

import (
	"encoding/binary"
	"fmt"
	"math"

	"spillway/device"
	"spillway/op"
	"spillway/plan"
)

// Tensor is a param, or what the optimizer keeps of it, at its home.
type Tensor struct {
	Param plan.SlabParam
	// State is "" for the weight, Master, Gradient, or the name of a state.
	State string
	Type  op.Type
	// at are the buffers that hold it, behind each other: one, or one per piece.
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
	for _, s := range e.plan.Slabs {
		for _, p := range s.Params {
			t := e.tensor(p, "", p.Type, s.Weight, p.Offset)
			for _, id := range s.Replicas {
				t.copies = append(t.copies, e.partOf(id, p.Offset, p.Type.Bytes()))
			}
			list = append(list, t)
		}
	}
	return list
}

func (e *Executor) tensor(p plan.SlabParam, state string, t op.Type, in int, offset int64) Tensor {
	return Tensor{Param: p, State: state, Type: t, at: []deviceBuffer{e.partOf(in, offset, t.Bytes())}}
}

// part of a buffer of the plan.
func (e *Executor) partOf(in int, offset, bytes int64) deviceBuffer {
	b := e.buffer(in)
	b.Offset, b.Bytes = b.Offset+offset, bytes
	return deviceBuffer{b, e.plan.Arenas[e.plan.Buffers[in].Arena].Device}
}

// Write fills a tensor; fill is given chunks in order, with the offset of each.
// Replicas are filled from the same calls.
func (e *Executor) Write(t Tensor, fill func(offset int64, chunk []byte) error) error {
	if err := e.Flush(); err != nil {
		return err
	}
	if err := e.eachChunk(t, "filling", func(b deviceBuffer, off int64, bad *error) error {
		return e.access(b, nil, func(chunk []byte) { *bad = fill(off, chunk) })
	}); err != nil || len(t.copies) == 0 {
		return err
	}
	return e.Read(t, func(off int64, chunk []byte) error {
		for _, c := range t.copies {
			c.Offset, c.Bytes = c.Offset+off, int64(len(chunk))
			if err := e.access(c, nil, func(dst []byte) { copy(dst, chunk) }); err != nil {
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
	return e.eachChunk(t, "reading", func(b deviceBuffer, off int64, bad *error) error {
		return e.access(b, func(chunk []byte) { *bad = use(off, chunk) }, nil)
	})
}

// stagingBytes bounds the host memory used to reach device memory.
const stagingBytes = 16 << 20

// each visits a tensor in chunks: whole buffers where the host reaches them, else as
// much as the staging memory takes.
func (e *Executor) eachChunk(t Tensor, doing string, visit func(b deviceBuffer, off int64, bad *error) error) error {
	var off int64
	for _, at := range t.at {
		step := at.Bytes
		if at.Memory.Host() == nil {
			step = stagingBytes
		}
		for done := int64(0); done < at.Bytes; done += step {
			b := at
			b.Offset, b.Bytes = at.Offset+done, min(step, at.Bytes-done)
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

// located is a buffer and the device that reaches it.
type deviceBuffer struct {
	device.Buffer
	dev int
}

// access lets the host read or write a buffer: in place where the CPU reaches it,
// else through a staging buffer.
func (e *Executor) access(b deviceBuffer, read, write func([]byte)) error {
	if h := b.Host(); h != nil {
		if read != nil {
			read(h)
		}
		if write != nil {
			write(h)
		}
		return nil
	}
	stage, err := e.stage(b)
	if err != nil {
		return err
	}
	if read != nil {
		q := e.queues[laneKey{b.dev, plan.Compute}] // which nothing trails
		if err := q.Copy(stage, b.Buffer); err != nil {
			return err
		}
		if err := q.Sync(); err != nil {
			return err
		}
		read(stage.Host())
	}
	if write == nil {
		return nil
	}
	write(stage.Host())
	q := e.queues[laneKey{b.dev, plan.In}]
	if err := q.Copy(b.Buffer, stage); err != nil {
		return err
	}
	return q.Sync()
}

func (e *Executor) stage(b deviceBuffer) (device.Buffer, error) {
	if e.staging == nil {
		m, err := e.devices[b.dev].HostAlloc(stagingBytes)
		if err != nil {
			return device.Buffer{}, fmt.Errorf("staging memory: %w", err)
		}
		e.staging = m
	}
	s := device.Buffer{Memory: e.staging, Bytes: b.Bytes}
	if s.Host() == nil {
		return s, fmt.Errorf("%s has no memory to read or write", e.plan.Devices[b.dev].Name)
	}
	return s, nil
}

// Prepare writes what programs expect to find: constants, and a clip factor of 1, or
// where updates come late 0, since none is owed yet.
func (e *Executor) WriteConstants() error {
	if err := e.awaitCarried(); err != nil {
		return err
	}
	for id, b := range e.plan.Buffers {
		if b.Class != plan.Constant {
			continue
		}
		for _, c := range e.plan.Consts {
			part := e.buffer(id)
			part.Offset, part.Bytes = part.Offset+c.Offset, int64(len(c.Data))
			if err := e.access(deviceBuffer{part, e.plan.Arenas[b.Arena].Device}, nil, func(dst []byte) { copy(dst, c.Data) }); err != nil {
				return fmt.Errorf("constant %s: %w", c.Name, err)
			}
		}
	}
	if e.deferred {
		return e.setClip(0, 0)
	}
	return e.setClip(1, 0)
}

// setClip writes the clip factor and the norm for all devices.
func (e *Executor) setClip(factor, norm float32) error {
	for _, b := range e.clipBuffers() {
		err := e.access(b, nil, func(b []byte) {
			binary.LittleEndian.PutUint32(b, math.Float32bits(factor))
			binary.LittleEndian.PutUint32(b[4:], math.Float32bits(norm))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// clipBuffers hold the clip factor and the norm, one per device.
func (e *Executor) clipBuffers() []deviceBuffer {
	seen := map[int]bool{}
	var list []deviceBuffer
	for i := range e.plan.Instructions {
		bind, ok := e.plan.Instructions[i].Bound(plan.InClip, 0)
		if !ok || seen[bind.Buffer] {
			continue
		}
		seen[bind.Buffer] = true
		list = append(list, deviceBuffer{e.buffer(bind.Buffer), e.plan.Instructions[i].Device})
	}
	return list
}
