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
	flags := make([]map[regionKey]readWrite, len(p.Programs))
	for i := range p.Programs {
		flags[i] = p.Programs[i].regionAccess()
	}
	all := make([][]Access, len(p.Steps))
	for i := range p.Steps {
		all[i] = accesses(&p.Steps[i], flags)
	}
	return all
}

func accesses(s *Step, programs []map[regionKey]readWrite) []Access {
	switch s.Verb {
	case Move:
		return []Access{{Buffer: s.Src, Read: true}, {Buffer: s.Dst, Write: true}}
	case Run:
		return bindAccesses(s, func(b Bind) (bool, bool) {
			f := programs[s.Program][regionKey{b.Region, b.Index}]
			return f.read, f.write
		})
	case Reduce:
		return bindAccesses(s, reduceAccess)
	case UpdateRun:
		return bindAccesses(s, updateAccess)
	}
	return nil
}

// reduceAccess: partial sums become the clip; gradients are added to the first.
func reduceAccess(b Bind) (read, write bool) {
	return b.Region != InClip, b.Region == InClip || b.Region == InGrad && b.Index == 0
}

// updateAccess: weights that have a master are only written, but counting them as
// read too costs nothing and keeps the rule simple. The frame is written.
func updateAccess(b Bind) (read, write bool) {
	if b.Region == InFrame {
		return false, true
	}
	return true, b.Region == InWeight || b.Region == InMaster || b.Region == InMoment
}

func bindAccesses(s *Step, how func(Bind) (read, write bool)) []Access {
	list := make([]Access, len(s.Bind))
	for i, b := range s.Bind {
		read, write := how(b)
		list[i] = Access{b.Buffer, read, write}
	}
	return list
}

type regionKey struct {
	region Region
	index  int
}

type readWrite struct{ read, write bool }

// regionAccess follows from the ports of a program: inputs are read, outputs
// written, and read too where they accumulate. The frame is written.
func (g *Program) regionAccess() map[regionKey]readWrite {
	flags := map[regionKey]readWrite{{InFrame, 0}: {write: true}}
	mark := func(v graph.Value, read, write bool) {
		r := regionKey{g.Places[v].Region, g.Places[v].Index}
		f := flags[r]
		flags[r] = readWrite{f.read || read, f.write || write}
	}
	for _, in := range g.Graph.Inputs {
		mark(in.Value, true, false)
	}
	for _, out := range g.Graph.Outputs {
		mark(out.Value, g.accumulates(out.Value), true)
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
