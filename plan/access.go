package plan

import "spillway/graph"

// Access is an instruction's use of a buffer. A buffer that is both read and written has
// one access with both set.
type Access struct {
	Buffer      int
	Read, Write bool
}

// Accesses lists, for every instruction, the buffers it touches, and the tables of those
// that are indirect. A free touches none.
func (p *Plan) Accesses() [][]Access {
	uses := make([]regionUses, len(p.Programs))
	for i := range p.Programs {
		uses[i] = p.Programs[i].regionAccess()
	}
	total := 0
	for i := range p.Instructions {
		total += max(2, len(p.Instructions[i].Bindings))
	}
	list := make([]Access, 0, total) // of all instructions, one after the other
	all := make([][]Access, len(p.Instructions))
	for i := range p.Instructions {
		from := len(list)
		list = appendAccesses(list, &p.Instructions[i], uses)
		for _, a := range list[from:] {
			if pages := p.Buffers[a.Buffer].Pages; pages != nil {
				list = append(list, Access{Buffer: pages.Table, Read: true})
			}
		}
		all[i] = list[from:len(list):len(list)]
	}
	return all
}

func appendAccesses(list []Access, s *Instruction, programs []regionUses) []Access {
	switch s.Verb {
	case Move:
		return append(list, Access{Buffer: s.Src, Read: true}, Access{Buffer: s.Dst, Write: true})
	case Run:
		for _, b := range s.Bindings {
			u := programs[s.Program].find(b.Region, b.Index)
			list = append(list, Access{b.Buffer, u != nil && u.read, u != nil && u.write})
		}
	case Reduce: // partial sums become the clip factor; gradients are added to the first
		for _, b := range s.Bindings {
			list = append(list, Access{b.Buffer, b.Region != InClip, b.Region == InClip || b.Region == InGrad && b.Index == 0})
		}
	case Update: // the frame is only written, and so are weights that have a master
		_, master := s.Bound(InMaster, 0)
		for _, b := range s.Bindings {
			only := b.Region == InFrame || b.Region == InWeight && master
			list = append(list, Access{b.Buffer, !only, only || b.Region == InWeight || b.Region == InMaster || b.Region == InState})
		}
	}
	return list
}

// regionUses says how a program uses its regions. There are a handful, so a list will do.
type regionUses []regionUse

type regionUse struct {
	region      Region
	index       int
	read, write bool
}

func (u regionUses) find(r Region, index int) *regionUse {
	for i := range u {
		if u[i].index == index && u[i].region == r {
			return &u[i]
		}
	}
	return nil
}

func (u *regionUses) mark(at Place, read, write bool) {
	if had := u.find(at.Region, at.Index); had != nil {
		had.read, had.write = had.read || read, had.write || write
		return
	}
	*u = append(*u, regionUse{at.Region, at.Index, read, write})
}

// regionAccess follows from the ports of a program: inputs are read, outputs are
// written, and read too where they accumulate. The frame is written.
func (g *Program) regionAccess() regionUses {
	uses := regionUses{{region: InFrame, write: true}}
	for _, in := range g.Graph.Inputs {
		uses.mark(g.Places[in.Value], true, false)
	}
	added := map[graph.Value]bool{} // to what their places hold
	for _, n := range g.Graph.Nodes {
		if n.Attr.Accumulate {
			for _, i := range n.Kind.Accumulates(n.Attr) {
				added[n.Out[i]] = true
			}
		}
	}
	for _, out := range g.Graph.Outputs {
		uses.mark(g.Places[out.Value], added[out.Value], true)
	}
	return uses
}
