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
		total += p.Instructions[i].bufferCount()
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

// bufferCount is how many buffers an instruction touches, tables aside.
func (s *Instruction) bufferCount() int {
	switch s.Verb {
	case Move:
		return 2
	case Free:
		return 0
	}
	return len(s.Bindings)
}

func appendAccesses(list []Access, s *Instruction, programs []regionUses) []Access {
	switch s.Verb {
	case Move:
		return append(list, Access{Buffer: s.Src, Read: true}, Access{Buffer: s.Dst, Write: true})
	case Run:
		for _, b := range s.Bindings {
			u := programs[s.Program].of(b.Region, b.Index)
			list = append(list, Access{b.Buffer, u.read, u.write})
		}
	case Reduce:
		for _, b := range s.Bindings {
			read, write := reduceAccess(b)
			list = append(list, Access{b.Buffer, read, write})
		}
	case Update:
		_, master := s.Bound(InMaster, 0)
		for _, b := range s.Bindings {
			read, write := updateAccess(b, master)
			list = append(list, Access{b.Buffer, read, write})
		}
	}
	return list
}

// reduceAccess: partial sums become the clip factor; gradients are added to the first.
func reduceAccess(b Binding) (read, write bool) {
	return b.Region != InClip, b.Region == InClip || b.Region == InGrad && b.Index == 0
}

// updateAccess: the frame is only written, and so are weights that have a master.
func updateAccess(b Binding, master bool) (read, write bool) {
	if b.Region == InFrame || b.Region == InWeight && master {
		return false, true
	}
	return true, b.Region == InWeight || b.Region == InMaster || b.Region == InState
}

// regionUses says how a program uses its regions. There are a handful, so a list will do.
type regionUses []regionUse

type regionUse struct {
	region      Region
	index       int
	read, write bool
}

func (u regionUses) of(r Region, index int) regionUse {
	for i := range u {
		if u[i].index == index && u[i].region == r {
			return u[i]
		}
	}
	return regionUse{}
}

func (u regionUses) mark(r Region, index int, read, write bool) regionUses {
	for i := range u {
		if u[i].index == index && u[i].region == r {
			u[i].read, u[i].write = u[i].read || read, u[i].write || write
			return u
		}
	}
	return append(u, regionUse{r, index, read, write})
}

// regionAccess follows from the ports of a program: inputs are read, outputs are
// written, and read too where they accumulate. The frame is written.
func (g *Program) regionAccess() regionUses {
	uses := regionUses{{region: InFrame, write: true}}
	for _, in := range g.Graph.Inputs {
		at := g.Places[in.Value]
		uses = uses.mark(at.Region, at.Index, true, false)
	}
	for _, out := range g.Graph.Outputs {
		at := g.Places[out.Value]
		uses = uses.mark(at.Region, at.Index, g.accumulates(out.Value), true)
	}
	return uses
}

// accumulates says whether a value is added to what its place holds.
func (g *Program) accumulates(v graph.Value) bool {
	for _, n := range g.Graph.Nodes {
		if !n.Attr.Accumulate {
			continue
		}
		for _, i := range n.Kind.Accumulates(n.Attr) {
			if n.Out[i] == v {
				return true
			}
		}
	}
	return false
}
