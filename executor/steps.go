package executor

import (
	"context"
	"fmt"
	"strings"

	"spillway/dtype"
	"spillway/graph"
	"spillway/op"
	"spillway/plan"
	"spillway/quant"
)

// Step is a phase of a plan to generate, for whoever fills its batch and reads its result.
type Step struct {
	Rows int64 // that it computes
	// Batch are the tensors of its batch, to be filled before it runs.
	Batch map[string][]byte
	// Result is its logits [outputs vocabulary] in Type, valid until it runs again.
	Result  []byte
	Type    dtype.Type
	Outputs int64
	// Draws: the result is tokens [outputs] in I32 that were drawn as the batch tensor "sampling" says.
	Draws bool
	// Rest are further chunks of a pass: each has as many rows, and a batch and a result of its own.
	// Chunks are computed one after the other, so that a later one sees the tokens of an earlier one.
	Rest  []Step
	phase string // "" is the main phase
}

// Part is the n-th chunk of a step; most have one.
func (s *Step) Part(n int) *Step {
	if n == 0 {
		return s
	}
	return &s.Rest[n-1]
}

// Steps lists the steps of a plan to generate: the phases, then the main one.
func (e *Executor) Steps() ([]Step, error) {
	var list []Step
	for _, ph := range e.Plan().Phases {
		view, err := e.Plan().Phase(ph.Name)
		if err != nil {
			return nil, err
		}
		s, err := e.step(view, ph.Name)
		if err != nil {
			return nil, fmt.Errorf("phase %s: %w", ph.Name, err)
		}
		list = append(list, s)
	}
	main, err := e.step(e.Plan(), "")
	return append(list, main), err
}

func (e *Executor) step(p *plan.Plan, phase string) (Step, error) {
	s, err := e.chunk(p, phase, 0)
	for micro := 1; micro < p.MicroBatches && err == nil; micro++ {
		var next Step
		next, err = e.chunk(p, phase, micro)
		s.Rest = append(s.Rest, next)
	}
	return s, err
}

// chunk is what a step has of one micro-batch.
func (e *Executor) chunk(p *plan.Plan, phase string, micro int) (Step, error) {
	s := Step{phase: phase, Batch: map[string][]byte{}}
	in, out := p.BatchHome(micro), p.ResultHome(micro)
	if in < 0 || out < 0 {
		return s, fmt.Errorf("the plan for %s has no batch or no result on the host", p.Model)
	}
	batch := e.memory.buffer(in).Host()
	s.Result = e.memory.buffer(out).Host()
	for _, t := range p.Batch {
		s.Batch[t.Name] = batch[t.Offset : t.Offset+t.Type.Bytes()]
		if t.Name == "tokens" {
			s.Rows = t.Type.Shape.Elements()
		}
	}
	for i := range p.Instructions {
		if _, ok := p.Instructions[i].Bound(plan.OutResult, 0); ok {
			g := p.Programs[p.Instructions[i].Program].Graph
			t := g.Type(graph.Ports(g.Outputs, graph.Result)[0].Value)
			if s.Type, s.Outputs, s.Draws = t.DType, t.Shape.Rows(), t.DType == dtype.I32; s.Draws {
				s.Outputs = t.Shape.Elements()
			}
		}
	}
	return s, nil
}

// RunStep runs a step of Steps.
func (e *Executor) RunStep(ctx context.Context, s *Step) error {
	if s.phase == "" {
		return e.until(ctx, func() error { return e.Iterate(ctx, IterationArgs{}) })
	}
	return e.RunPhase(ctx, s.phase, IterationArgs{})
}

// Phase is the name of the step's phase in the plan; "" is the main one.
func (s *Step) Phase() string { return s.phase }

// IDs is how many ids a tensor of the batch may hold, from 0 on; ok is false where no op
// looks them up.
func (e *Executor) IDs(tensor string) (count int64, ok bool) {
	for _, c := range e.batch.ids {
		if c.tensor == tensor && (!ok || c.ids.Count < count) {
			count, ok = c.ids.Count, true
		}
	}
	return count, ok
}

// cacheTensor is the keys or the values of a block.
type cacheTensor struct {
	at   deviceBuffer
	kind op.Type // [N K page D]
}

// findCaches lists the caches of a plan by the batch tensor that has the table of their pages:
// the one that an op reads together with them.
func (m *memory) findCaches() map[string][]cacheTensor {
	found, seen, home := map[string][]cacheTensor{}, map[int]bool{}, map[int]int{}
	for i := range m.plan.Instructions {
		s := &m.plan.Instructions[i]
		if s.Verb == plan.Move && m.plan.Buffers[s.Src].Class == plan.Cache && m.plan.Buffers[s.Src].Home {
			home[s.Dst] = s.Src // a run gets a copy of what is stored on the host
		}
		if s.Verb != plan.Run {
			continue
		}
		g := m.plan.Programs[s.Program].Graph
		tables, caches := map[graph.Value]string{}, map[graph.Value]int{}
		for _, port := range g.Inputs {
			switch {
			case port.Role == graph.Batch && strings.HasPrefix(port.Name, graph.PagesPrefix):
				tables[port.Value] = port.Name
			case port.Role == graph.Cache:
				caches[port.Value] = port.Index
			}
		}
		for _, n := range g.Nodes {
			table := ""
			for _, v := range n.In {
				table = max(table, tables[v])
			}
			for _, v := range n.In {
				index, ok := caches[v]
				if !ok || table == "" {
					continue
				}
				bind, ok := s.Bound(plan.InCache, index)
				at := bind.Buffer
				if stored, moved := home[at]; moved {
					at = stored
				}
				if ok && !seen[at] {
					seen[at] = true
					found[table] = append(found[table], cacheTensor{m.partOf(at, 0, g.Type(v).Bytes()), g.Type(v)})
				}
			}
		}
	}
	return found
}

// CopyPage copies a page of all caches whose pages a batch tensor assigns. Steps that follow
// see the copy.
func (e *Executor) CopyPage(table string, from, to int32) error {
	if e.caches == nil {
		e.caches = e.memory.findCaches()
	}
	if err := e.awaitCarried(); err != nil { // keys and values may be on their way to the host
		return err
	}
	for _, c := range e.caches[table] {
		q := e.memory.queue(c.at.dev, plan.Compute)
		for _, part := range c.parts() {
			if host := c.at.Host(); host != nil { // nothing else touches it between steps
				copy(host[part.offset+int64(to)*part.bytes:][:part.bytes], host[part.offset+int64(from)*part.bytes:][:part.bytes])
				continue
			}
			src, dst := c.at.Buffer, c.at.Buffer
			src.Offset, src.Bytes = src.Offset+part.offset+int64(from)*part.bytes, part.bytes
			dst.Offset, dst.Bytes = dst.Offset+part.offset+int64(to)*part.bytes, part.bytes
			if err := q.Copy(dst, src); err != nil {
				return fmt.Errorf("copying page %d of the cache to %d: %w", from, to, err)
			}
		}
	}
	return nil
}

// pagePart is where pages begin in a tensor, and what one takes there.
type pagePart struct{ offset, bytes int64 }

// parts of the storage of a cache that are pages one after the other: all of it, or in a
// type whose blocks are rows the codes and, behind them, what scales them.
func (c cacheTensor) parts() []pagePart {
	pages, s := c.kind.Shape[0], c.kind.Shape
	if !c.kind.DType.ByRows() {
		return []pagePart{{0, c.kind.Bytes() / pages}}
	}
	codes := s.Rows() * quant.RowCodeBytes(c.kind.DType, s.Last())
	return []pagePart{{0, codes / pages}, {codes, (c.kind.Bytes() - codes) / pages}}
}
