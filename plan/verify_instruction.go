package plan

import (
	"fmt"
	"slices"
)

// P4: instructions by themselves.

func verifyInstructions(p *Plan) error {
	for i := range p.Instructions {
		if err := p.verifyInstruction(i); err != nil {
			return fmt.Errorf("instruction %d, %s: %w", i, p.Instructions[i].Verb, err)
		}
	}
	return nil
}

func (p *Plan) verifyInstruction(i int) error {
	s := &p.Instructions[i]
	if s.Device < 0 || s.Device >= len(p.Devices) {
		return fmt.Errorf("device %d of %d", s.Device, len(p.Devices))
	}
	for _, a := range s.After {
		if a < 0 || a >= i || p.Instructions[a].Verb == Free {
			return fmt.Errorf("it waits for instruction %d", a)
		}
	}
	for _, b := range s.Bindings {
		if b.Buffer < 0 || b.Buffer >= len(p.Buffers) || b.Offset < 0 || b.Offset > p.Buffers[b.Buffer].Bytes {
			return fmt.Errorf("it binds %s to buffer %d at %d", b.Region, b.Buffer, b.Offset)
		}
	}
	if s.Verb == Free {
		return p.buffersExist(s.Dst)
	}
	for _, b := range s.Bindings { // a process reaches memory of its own rank
		if at := p.Devices[p.Arenas[p.Buffers[b.Buffer].Arena].Device]; s.Verb != Move && at.Rank != p.Devices[s.Device].Rank {
			return fmt.Errorf("it runs on rank %d and binds %s to memory of rank %d", p.Devices[s.Device].Rank, b.Region, at.Rank)
		}
	}
	if s.Lane != Compute && s.Lane != In && s.Lane != Out {
		return fmt.Errorf("no lane %q", s.Lane)
	}
	switch s.Verb {
	case Move:
		return p.verifyMove(s)
	case Run:
		return p.verifyRun(s)
	case Reduce:
		return p.verifyReduce(s)
	case Update:
		return p.verifyUpdate(s)
	}
	return fmt.Errorf("there is no such verb")
}

// verifyMove: a move fills a buffer, or a part of one that is written in parts.
func (p *Plan) verifyMove(s *Instruction) error {
	if err := p.buffersExist(s.Src, s.Dst); err != nil {
		return err
	}
	a, b := p.Buffers[s.Src].Bytes, p.Buffers[s.Dst].Bytes
	whole := s.Offset == 0 && a == b
	part := p.Buffers[s.Dst].Class == Workspace && s.Offset >= 0 && s.Offset <= b && a <= b-s.Offset
	if s.Src == s.Dst || !whole && !part {
		return fmt.Errorf("from buffer %d of %d bytes to buffer %d of %d at %d", s.Src, a, s.Dst, b, s.Offset)
	}
	return nil
}

// verifyReduce: partial sums into a clip, or gradients of equal size.
func (p *Plan) verifyReduce(s *Instruction) error {
	if _, sums := s.Bound(OutPartial, 0); sums {
		return p.bindsAtLeast(s, map[Region]int64{OutPartial: 8, InClip: 8})
	}
	if p.Optimizer == nil || s.Slab < 0 || s.Slab >= len(p.Slabs) || len(s.Bindings) < 2 {
		return fmt.Errorf("%d gradients of slab %d of %d", len(s.Bindings), s.Slab, len(p.Slabs))
	}
	for i, b := range s.Bindings {
		if b.Region != InGrad || b.Index != i || b.Offset != 0 || p.Buffers[b.Buffer].Bytes != p.gradBytes(s.Slab) {
			return fmt.Errorf("part %d of slab %s is %s %d of %d bytes", i, p.Slabs[s.Slab].Name, b.Region, b.Index, p.Buffers[b.Buffer].Bytes)
		}
	}
	return nil
}

func (p *Plan) buffersExist(ids ...int) error {
	for _, id := range ids {
		if id < 0 || id >= len(p.Buffers) {
			return fmt.Errorf("buffer %d of %d", id, len(p.Buffers))
		}
	}
	return nil
}

func (p *Plan) bindsAtLeast(s *Instruction, bytes map[Region]int64) error {
	for r, n := range bytes {
		b, ok := s.Bound(r, 0)
		if !ok || p.Buffers[b.Buffer].Bytes-b.Offset < n {
			return fmt.Errorf("%s needs %d bytes bound", r, n)
		}
	}
	return nil
}

// verifyRun checks that every value lies in what is bound to its region.
func (p *Plan) verifyRun(s *Instruction) error {
	if s.Program < 0 || s.Program >= len(p.Programs) {
		return fmt.Errorf("program %d of %d", s.Program, len(p.Programs))
	}
	g := &p.Programs[s.Program]
	if g.Frame > 0 {
		if err := p.bindsAtLeast(s, map[Region]int64{InFrame: g.Frame}); err != nil {
			return err
		}
	}
	for v := range g.Places[1:] {
		at, t := g.Places[v+1], g.Graph.Types[v+1]
		if at.Region == "" || at.Region == InFrame {
			continue
		}
		b, ok := s.Bound(at.Region, at.Index)
		if !ok {
			return fmt.Errorf("program %s: nothing is bound to %s %d", g.Graph.Name, at.Region, at.Index)
		}
		if bound := p.Buffers[b.Buffer].Bytes - b.Offset; at.Offset < 0 || at.Offset > bound || t.Bytes() > bound-at.Offset {
			return fmt.Errorf("program %s: value %d takes bytes %d to %d of %s %d, which has %d", g.Graph.Name, v+1, at.Offset, at.Offset+t.Bytes(), at.Region, at.Index, bound)
		}
	}
	for _, n := range g.Graph.Nodes {
		for _, v := range slices.Concat(n.In, n.Out) {
			if g.Places[v].Region == "" {
				return fmt.Errorf("program %s: value %d has no place", g.Graph.Name, v)
			}
		}
	}
	return nil
}

// gradBytes is what the gradient of a slab takes.
func (p *Plan) gradBytes(slab int) int64 {
	s := &p.Slabs[slab]
	return p.Optimizer.GradTypeOf(s.TrainedType()).Bytes(s.Elements)
}

func (p *Plan) verifyUpdate(s *Instruction) error {
	if p.Optimizer == nil {
		return fmt.Errorf("the plan has no optimizer")
	}
	if s.Slab < 0 || s.Slab >= len(p.Slabs) {
		return fmt.Errorf("slab %d of %d", s.Slab, len(p.Slabs))
	}
	slab := p.Slabs[s.Slab]
	if s.Piece < 0 || s.Piece >= len(slab.Pieces) {
		return fmt.Errorf("piece %d of %d of slab %s", s.Piece, len(slab.Pieces), slab.Name)
	}
	piece := slab.Pieces[s.Piece]
	need := map[Region]int64{InWeight: slab.WeightBytes, InGrad: p.gradBytes(s.Slab), InClip: 8}
	if piece.Master >= 0 {
		need[InMaster] = 4 * piece.Elements()
	}
	if n := StateBytes(p.Optimizer.Spans(&slab, piece)); n > 0 {
		need[InState] = n
	}
	return p.bindsAtLeast(s, need)
}
