package layout

import (
	"slices"

	"spillway/autograd"
	"spillway/graph"
	"spillway/op"
	"spillway/planner/strategy"
)

// attentionShare is the share of the time of a forward pass that attention must take for
// its outputs to get a level of their own.
const attentionShare = 0.03

// findLevels lists the levels that blocks may save at.
func (l *Layout) findLevels() []strategy.Level {
	blocks := make([]float64, len(l.Model.Kinds)) // of each kind
	for _, block := range l.Model.Blocks {
		blocks[block.Kind]++
	}
	var attention, all float64
	timing := l.Site.Timing()
	for kind, n := range blocks {
		p := l.Model.Kinds[kind].Program
		all += n * l.Seconds(p)
		for _, node := range p.Nodes {
			if attends(node) {
				attention += n * timing.Time(p.Call(node)).Seconds()
			}
		}
	}
	if attention < attentionShare*all {
		return []strategy.Level{strategy.SaveAll, strategy.SaveMatmuls, strategy.SaveNone}
	}
	return []strategy.Level{strategy.SaveAll, strategy.SaveMatmuls, strategy.SaveAttention, strategy.SaveNone}
}

// LevelAfter is the level of block i after so many steps, each of which takes the next block
// to its next level.
func (l *Layout) LevelAfter(steps, i int) strategy.Level {
	blocks := len(l.Model.Blocks)
	return l.levels[(steps+blocks-1-i)/blocks]
}

// savedValues are those that a level saves from forward to backward.
func savedValues(j *autograd.Joint, level strategy.Level) []graph.Value {
	maker := map[graph.Value]graph.Node{} // of the values that the forward makes
	for _, n := range j.Program.Nodes[:j.Forward] {
		for _, v := range n.Out {
			maker[v] = n
		}
	}
	switch level {
	case strategy.SaveAll: // dequantized weights are quickly made again, and saved they would undo what quantizing saves
		return slices.DeleteFunc(j.Saved(), func(v graph.Value) bool { return maker[v].Kind == op.Dequantize })
	case strategy.SaveMatmuls:
		return savedMatmuls(j, maker)
	}
	return slices.DeleteFunc(j.Saved(), func(v graph.Value) bool {
		return (!attends(maker[v]) || level != strategy.SaveAttention) && !statistic(maker[v], v)
	})
}

func attends(n graph.Node) bool { return n.Kind == op.Attention || n.Kind == op.JoinedAttention }

// statistic says that a value is a mean or variance of a norm: small, and to compute it again takes a pass.
func statistic(n graph.Node, v graph.Value) bool { return n.Kind == op.GroupNorm && v != n.Out[0] }

// savedMatmuls are the outputs of matmuls, convolutions and attention, and statistics of norms, from which everything else that the
// gradient reads follows by cheap ops.
func savedMatmuls(j *autograd.Joint, maker map[graph.Value]graph.Node) []graph.Value {
	seen := map[graph.Value]bool{}
	var keep []graph.Value
	var need func(v graph.Value)
	need = func(v graph.Value) {
		n, inner := maker[v]
		if seen[v] || !inner {
			return
		}
		seen[v] = true
		if n.Kind == op.MatMul || n.Kind == op.BatchMatMul || n.Kind == op.QuantizedMatmul || n.Kind == op.Conv || n.Kind == op.LinearPlus || attends(n) || statistic(n, v) {
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
