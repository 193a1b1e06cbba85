package plan

import "spillway/graph"

// Access is a step's use of a buffer. A buffer both read and written counts once
// with both set.
type Access struct {
	Buffer      int
	Read, Write bool
}

// Accesses lists, for every step, the buffers it touches, each once. A free
// touches none.
func (p *Plan) Accesses() [][]Access {
	flags := make([]regionUses, len(p.Programs))
	for i := range p.Programs {
		flags[i] = p.Programs[i].regionAccess()
	}
	total := 0
	for i := range p.Instructions {
		total += p.Instructions[i].bufferCount()
	}
	list := make([]Access, 0, total) // of all steps behind each other
	all := make([][]Access, len(p.Instructions))
	for i := range p.Instructions {
		from := len(list)
		list = appendAccesses(list, &p.Instructions[i], flags)
		all[i] = list[from:len(list):len(list)]
	}
	return all
}

// touches is how many buffers a step touches.
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
			f := programs[s.Program].of(b.Region, b.Index)
			list = append(list, Access{b.Buffer, f.read, f.write})
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

// reduceAccess: partial sums become the clip; gradients are added to the first.
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

// regionFlags says how a program uses its regions: a handful, looked up in a row.
type regionUses []regionUse

type regionUse struct {
	region      Region
	index       int
	read, write bool
}

func (f regionUses) of(r Region, index int) regionUse {
	for i := range f {
		if f[i].index == index && f[i].region == r {
			return f[i]
		}
	}
	return regionUse{}
}

func (f regionUses) mark(r Region, index int, read, write bool) regionUses {
	for i := range f {
		if f[i].index == index && f[i].region == r {
			f[i].read, f[i].write = f[i].read || read, f[i].write || write
			return f
		}
	}
	return append(f, regionUse{r, index, read, write})
}

// regionAccess follows from the ports of a program: inputs are read, outputs
// written, and read too where they accumulate. The frame is written.
func (g *Program) regionAccess() regionUses {
	flags := regionUses{{region: InFrame, write: true}}
	for _, in := range g.Graph.Inputs {
		at := g.Places[in.Value]
		flags = flags.mark(at.Region, at.Index, true, false)
	}
	for _, out := range g.Graph.Outputs {
		at := g.Places[out.Value]
		flags = flags.mark(at.Region, at.Index, g.accumulates(out.Value), true)
	}
	return flags
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
