package spec

import (
	"fmt"
	"math"
	"slices"

	"spillway/graph"
	"spillway/op"
)

// A running statistic moves where a block says so: by batch norms, which may be called several times, or by following a value. PyTorch moves it in each call, so that those before move it by
// less in the end; an update here moves it once, by what they come to.

// statistics refuses those that a block reads and does not move, or that two blocks move to values of their own, and weighs the calls of a norm in this block.
func (t *tracer) statistics(block string, p *graph.Program) error {
	if t.model.Config.Task != graph.Train {
		return nil
	}
	for _, port := range graph.Ports(p.Inputs, graph.Param) {
		param := t.bound[port.Name]
		if port.Frozen || param == nil || param.Momentum == 0 {
			continue
		}
		var norms []int
		follows := false
		for i, n := range p.Nodes {
			if n.Kind == op.GroupNorm && n.Attr.Running && slices.Contains(n.In[len(n.In)-2:], port.Value) {
				norms = append(norms, i)
			}
			follows = follows || n.Kind == op.Follow && n.In[1] == port.Value
		}
		moved := len(t.moved[port.Name]) > 0
		switch {
		case !follows && len(norms) == 0:
			return fmt.Errorf("buffer %s is read and nothing moves it here; a block that reads it says what it follows, or freeze it", port.Name)
		case follows && moved:
			return fmt.Errorf("buffer %s follows something here and in block %s; let one block read it", port.Name, t.moved[port.Name][0])
		}
		t.moved[port.Name] = append(t.moved[port.Name], block)
		for k, i := range norms {
			if later := len(norms) - 1 - k; later > 0 {
				p.Nodes[i].Attr.Scale = math.Pow(1-param.Momentum, float64(later))
			}
		}
	}
	return nil
}

// weighStatistics shares what a statistic moves by among the blocks that move it.
func (t *tracer) weighStatistics() {
	for name, blocks := range t.moved {
		if n := float64(len(blocks)); n > 1 {
			p := &t.model.Params[t.params[name]]
			p.Momentum = (1 - math.Pow(1-p.Momentum, n)) / n
		}
	}
}
