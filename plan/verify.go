package plan

import (
	"fmt"
	"sort"

	"spillway/graph"
)

// Verify says whether a plan is sound, whoever wrote it. The rules, by number:
//
//	P1  arenas fit their devices' budgets, buffers fit their arenas
//	P2  homes share no bytes with any buffer
//	P3  programs are well typed; their inner values never overlap while alive
//	P4  steps name what exists and bind every region their program uses, large enough
//	P5  nothing is read before it is written; no two live buffers share bytes;
//	    everything that is no home is freed, once, after its last use
//	P6  steps of different lanes that touch the same bytes, one of them writing, are
//	    ordered by After
//	P7  the pieces of a trained slab cover it, cut no block of a state, and are updated
//	    once each, after its last gradient; what an update changed away from home is
//	    moved home
//	P8  late steps are moves and updates; a late update takes the gradient that rests at
//	    home, before any run has read the weights it changes, before the norm is made
//	    anew, and before a new gradient goes home, which one does; runs read what it
//	    made
//	P9  what trails are copies from a device to the host that nobody but the executor
//	    reads, the last of their lanes, in plans without a disk; over two iterations in
//	    a row steps that touch the same bytes, one of them writing, are ordered by Past
//	    too
func Verify(p *Plan) error {
	for _, rule := range []struct {
		name  string
		check func(*Plan) error
	}{
		{"P1", verifyArenas}, {"P2", verifyHomes}, {"P3", verifyPrograms}, {"P4", verifyInstructions},
		{"P5", verifyLives}, {"P6", verifyOrder}, {"P7", verifyUpdates}, {"P8", verifyDeferred},
		{"P9", verifyCarryOver},
	} {
		if err := rule.check(p); err != nil {
			return fmt.Errorf("the plan for %s is not sound (%s): %w", p.Model, rule.name, err)
		}
	}
	return nil
}

func verifyArenas(p *Plan) error {
	if p.Version != Version {
		return fmt.Errorf("its version is %d, this program reads %d; make it again", p.Version, Version)
	}
	if p.MicroBatches < 1 || p.MicroBatchSize < 1 || len(p.Devices) == 0 {
		return fmt.Errorf("%d micro-batches of %d rows on %d devices", p.MicroBatches, p.MicroBatchSize, len(p.Devices))
	}
	used := make([]int64, len(p.Devices))
	for _, a := range p.Arenas {
		if a.Device < 0 || a.Device >= len(p.Devices) || a.Bytes < 0 {
			return fmt.Errorf("arena %s has device %d and %d bytes", a.Name, a.Device, a.Bytes)
		}
		if a.Tier == OnDevice || a.Tier == OnDisk {
			used[a.Device] += a.Bytes
		}
	}
	for d, dev := range p.Devices {
		if used[d] > dev.Budget {
			return fmt.Errorf("%s: %d bytes planned, the budget is %d", dev.Name, used[d], dev.Budget)
		}
	}
	for i, b := range p.Buffers {
		if b.Arena < 0 || b.Arena >= len(p.Arenas) {
			return fmt.Errorf("buffer %d %s is in arena %d of %d", i, b.Name, b.Arena, len(p.Arenas))
		}
		if size := p.Arenas[b.Arena].Bytes; b.Offset < 0 || b.Bytes < 0 || b.Offset > size || b.Bytes > size-b.Offset {
			return fmt.Errorf("buffer %d %s takes bytes %d to %d of an arena of %d", i, b.Name, b.Offset, b.Offset+b.Bytes, size)
		}
	}
	return nil
}

func verifyHomes(p *Plan) error {
	order := make([]int, len(p.Buffers))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool {
		a, b := p.Buffers[order[i]], p.Buffers[order[j]]
		return a.Arena < b.Arena || a.Arena == b.Arena && a.Offset < b.Offset
	})
	end, arena, last := int64(0), -1, -1 // of the homes so far
	reach, reacher := int64(0), -1       // of all buffers so far
	for _, i := range order {
		b := p.Buffers[i]
		if b.Bytes == 0 {
			continue
		}
		if b.Arena != arena {
			arena, end, last, reach, reacher = b.Arena, 0, -1, 0, -1
		}
		if b.Offset < end {
			return fmt.Errorf("buffers %s and %s share bytes, and one is a home", p.Buffers[last].Name, b.Name)
		}
		if b.Home && b.Offset < reach {
			return fmt.Errorf("buffers %s and %s share bytes, and one is a home", p.Buffers[reacher].Name, b.Name)
		}
		if b.Home {
			end, last = b.Offset+b.Bytes, i
		}
		if b.Offset+b.Bytes > reach {
			reach, reacher = b.Offset+b.Bytes, i
		}
	}
	return nil
}

func verifyPrograms(p *Plan) error {
	for i := range p.Programs {
		g := &p.Programs[i]
		if g.Graph == nil {
			return fmt.Errorf("program %d is empty", i)
		}
		if err := g.Graph.Verify(); err != nil {
			return err
		}
		if len(g.Places) != len(g.Graph.Types) {
			return fmt.Errorf("program %s has %d places for %d values", g.Graph.Name, len(g.Places), len(g.Graph.Types))
		}
		if err := g.verifyFrame(); err != nil {
			return fmt.Errorf("program %s: %w", g.Graph.Name, err)
		}
	}
	return nil
}

// verifyFrame checks that values inside the frame stay apart while alive.
func (g *Program) verifyFrame() error {
	type inner struct {
		v      graph.Value
		lo, hi int64
		last   int
	}
	last := make([]int, len(g.Graph.Types))
	for i, n := range g.Graph.Nodes {
		for _, v := range append(n.In[:len(n.In):len(n.In)], n.Out...) {
			last[v] = i
		}
	}
	if g.Workspace < 0 || g.Frame < g.Workspace {
		return fmt.Errorf("its frame of %d bytes has its workspace at %d", g.Frame, g.Workspace)
	}
	var alive []inner
	for i, n := range g.Graph.Nodes {
		for _, v := range n.Out {
			at := g.Places[v]
			if at.Region != InFrame {
				continue
			}
			now := inner{v, at.Offset, at.Offset + g.Graph.Type(v).Bytes(), last[v]}
			if now.lo < 0 || now.hi > g.Workspace {
				return fmt.Errorf("value %d takes bytes %d to %d of a frame of %d", v, now.lo, now.hi, g.Workspace)
			}
			rest := alive[:0]
			for _, o := range alive {
				if o.last < i {
					continue
				}
				if o.lo < now.hi && now.lo < o.hi {
					return fmt.Errorf("values %d and %d share bytes of the frame at node %d", o.v, v, i)
				}
				rest = append(rest, o)
			}
			alive = append(rest, now)
		}
	}
	return nil
}

func verifyInstructions(p *Plan) error {
	for i := range p.Instructions {
		if err := p.verifyInstruction(i); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, p.Instructions[i].Verb, err)
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
			return fmt.Errorf("it waits for step %d", a)
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
	if s.Lane != Compute && s.Lane != In && s.Lane != Out {
		return fmt.Errorf("no lane %q", s.Lane)
	}
	switch s.Verb {
	case Move:
		if err := p.buffersExist(s.Src, s.Dst); err != nil {
			return err
		}
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
		if room := p.Buffers[b.Buffer].Bytes - b.Offset; at.Offset < 0 || at.Offset > room || t.Bytes() > room-at.Offset {
			return fmt.Errorf("program %s: value %d takes bytes %d to %d of %s %d, which has %d", g.Graph.Name, v+1, at.Offset, at.Offset+t.Bytes(), at.Region, at.Index, room)
		}
	}
	return g.placed()
}

// placed checks that every value the program touches has a place.
func (g *Program) placed() error {
	touched := func(list []graph.Value) error {
		for _, v := range list {
			if g.Places[v].Region == "" {
				return fmt.Errorf("program %s: value %d has no place", g.Graph.Name, v)
			}
		}
		return nil
	}
	for _, n := range g.Graph.Nodes {
		if err := touched(n.In); err != nil {
			return err
		}
		if err := touched(n.Out); err != nil {
			return err
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
