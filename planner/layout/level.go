package layout

import (
	"slices"

	"spillway/autograd"
	"spillway/graph"
	"spillway/op"
	"spillway/planner/strategy"
)

// attentionShare is how much of the time of forward passes attention must take for its
// outputs to be worth a level of their own.
const attentionShare = 0.03

// findLevels lists the levels to choose from.
func (b *Layout) findLevels() []strategy.Level {
	blocks := make([]float64, len(b.Model.Kinds)) // of each kind
	for _, block := range b.Model.Blocks {
		blocks[block.Kind]++
	}
	var attention, all float64
	timing := b.Site.Timing()
	for kind, n := range blocks {
		p := b.Model.Kinds[kind].Program
		all += n * b.Seconds(p)
		for _, node := range p.Nodes {
			if node.Kind == op.Attention {
				attention += n * timing.Time(p.Call(node)).Seconds()
			}
		}
	}
	if attention < attentionShare*all {
		return []strategy.Level{strategy.SaveAll, strategy.SaveMatmuls, strategy.SaveNone}
	}
	return []strategy.Level{strategy.SaveAll, strategy.SaveMatmuls, strategy.SaveAttention, strategy.SaveNone}
}

// levelAfter is that of block i after so many steps, each of which takes the next block
// to its next level.
func (b *Layout) LevelAfter(steps, i int) strategy.Level {
	blocks := len(b.Model.Blocks)
	return b.levels[(steps+blocks-1-i)/blocks]
}

// keepSet is the values a level keeps.
func savedValues(j *autograd.Joint, level strategy.Level) []graph.Value {
	switch level {
	case strategy.SaveAll:
		return savedAll(j)
	case strategy.SaveMatmuls:
		return savedMatmuls(j)
	case strategy.SaveAttention:
		return savedAttention(j)
	}
	return nil
}

// keepMade is everything the gradient reads but unpacked weights: those are quickly
// unpacked again, and kept they would undo what packing them saves.
func savedAll(j *autograd.Joint) []graph.Value {
	unpacked := map[graph.Value]bool{}
	for _, n := range j.Program.Nodes[:j.Forward] {
		if n.Kind == op.Dequantize {
			unpacked[n.Out[0]] = true
		}
	}
	return slices.DeleteFunc(j.Saved(), func(v graph.Value) bool { return unpacked[v] })
}

// keepProducts finds the products and attentions from which everything the
// gradient reads follows by cheap ops.
func savedMatmuls(j *autograd.Joint) []graph.Value {
	maker := map[graph.Value]graph.Node{}
	for _, n := range j.Program.Nodes[:j.Forward] {
		for _, v := range n.Out {
			maker[v] = n
		}
	}
	seen := map[graph.Value]bool{}
	var keep []graph.Value
	var need func(v graph.Value)
	need = func(v graph.Value) {
		n, inner := maker[v]
		if seen[v] || !inner {
			return
		}
		seen[v] = true
		if n.Kind == op.MatMul || n.Kind == op.QuantizedMatmul || n.Kind == op.Attention {
			keep = append(keep, v)
			return
		}
		for _, in := range n.In {
			need(in)
		}
	}
	for _, v := range j.Saved() {
		need(v)
	}
	slices.Sort(keep)
	return keep
}

// keepAttention is what the gradient reads of what attention gives.
func savedAttention(j *autograd.Joint) []graph.Value {
	made := map[graph.Value]bool{}
	for _, n := range j.Program.Nodes[:j.Forward] {
		for _, v := range n.Out {
			made[v] = n.Kind == op.Attention
		}
	}
	return slices.DeleteFunc(j.Saved(), func(v graph.Value) bool { return !made[v] })
}
