package planner

import (
	"slices"

	"spillway/autograd"
	"spillway/graph"
	"spillway/op"
)

// Level says how much of a block's forward is kept for its backward.
type Level int

// The levels, from most memory and least time on.
const (
	SaveAll       Level = iota // every value the gradient reads, unpacked weights excepted
	SaveMatmuls                // outputs of products and attention; the cheap rest is recomputed
	SaveAttention              // outputs of attention, which take much time for their size
	SaveNone                   // only the block's input; its forward runs again

	levelCount = iota
)

// attentionShare is how much of the time of forward passes attention must take for its
// outputs to be worth a level of their own.
const attentionShare = 0.03

// findLevels lists the levels to choose from.
func (b *blueprint) findLevels() []Level {
	blocks := make([]float64, len(b.model.Kinds)) // of each kind
	for _, block := range b.model.Blocks {
		blocks[block.Kind]++
	}
	var attention, all float64
	for kind, n := range blocks {
		p := b.model.Kinds[kind].Program
		all += n * b.seconds(p)
		for _, node := range p.Nodes {
			if node.Kind == op.Attention {
				attention += n * b.site.Rates.Time(p.Call(node)).Seconds()
			}
		}
	}
	if attention < attentionShare*all {
		return []Level{SaveAll, SaveMatmuls, SaveNone}
	}
	return []Level{SaveAll, SaveMatmuls, SaveAttention, SaveNone}
}

// recomputes is how many steps it takes to give up all that can be computed again.
func (b *blueprint) recomputes() int { return (len(b.levels) - 1) * len(b.model.Blocks) }

// levelAfter is that of block i after so many steps, each of which takes the next block
// to its next level.
func (b *blueprint) levelAfter(steps, i int) Level {
	blocks := len(b.model.Blocks)
	return b.levels[(steps+blocks-1-i)/blocks]
}

// keepSet is the values a level keeps.
func savedValues(j *autograd.Joint, level Level) []graph.Value {
	switch level {
	case SaveAll:
		return savedAll(j)
	case SaveMatmuls:
		return savedMatmuls(j)
	case SaveAttention:
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
