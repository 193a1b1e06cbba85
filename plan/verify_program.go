package plan

import (
	"fmt"
	"slices"

	"spillway/graph"
)

// P3: programs by themselves.

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
		for _, v := range slices.Concat(n.In, n.Out) {
			last[v] = i
		}
	}
	if err := g.verifyOutside(last); err != nil {
		return err
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
				if o.lo < now.hi && now.lo < o.hi && !(o.last == i && o.lo == now.lo && o.hi == now.hi && g.overwrites(n, o.v, v)) {
					return fmt.Errorf("values %d and %d share bytes of the frame at node %d", o.v, v, i)
				}
				rest = append(rest, o)
			}
			alive = append(rest, now)
		}
	}
	return nil
}

// verifyOutside checks that what is no input or output lies in the frame, or where an output lies that is made from it and
// on it.
func (g *Program) verifyOutside(last []int) error {
	ports := make([]bool, len(g.Places))
	for _, port := range slices.Concat(g.Graph.Inputs, g.Graph.Outputs) {
		ports[port.Value] = true
	}
	for _, n := range g.Graph.Nodes {
		for _, v := range n.Out {
			if ports[v] || g.Places[v].Region == InFrame {
				continue
			}
			by := g.Graph.Nodes[last[v]]
			if !slices.ContainsFunc(by.Out, func(o graph.Value) bool {
				return ports[o] && g.Places[o] == g.Places[v] && g.Graph.Type(o).Bytes() == g.Graph.Type(v).Bytes() && g.overwrites(by, v, o)
			}) {
				return fmt.Errorf("value %d lies in %s %d, as no output that is made from it", v, g.Places[v].Region, g.Places[v].Index)
			}
		}
	}
	return nil
}

// overwrites says that output v of a node may lie where its operand over lies, which is one operand alone.
func (g *Program) overwrites(n graph.Node, over, v graph.Value) bool {
	for _, o := range g.Graph.Call(n).Overwrites() {
		if n.Out[o.Output] == v && n.In[o.Operand] == over {
			return !slices.Contains(n.In[:o.Operand], over) && !slices.Contains(n.In[o.Operand+1:], over) && !slices.Contains(n.Out, over)
		}
	}
	return false
}
