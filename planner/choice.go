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
	KeepAll      Level = iota // every value the gradient reads
	KeepProducts              // outputs of products and attention; the cheap rest is recomputed
	KeepNone                  // only the block's input; its forward runs again
)

// Choice says what rests where and what is computed twice.
type Choice struct {
	Streamed  []bool  // by slab: weights rest on the host and stream through the window
	Offloaded []bool  // by slab: master and moments rest on the host
	Level     []Level // by block
	Window    int     // how many streamed slabs may be on the device at once
	// Vertical: all micro-batches pass a block before the next block; else each
	// micro-batch passes all blocks before the next micro-batch.
	Vertical bool
}

// keepSet is the values a level keeps. A value that is an output of the block as
// well is kept in its own copy.
func keepSet(j *autograd.Joint, level Level) []graph.Value {
	saved := j.Saved()
	switch level {
	case KeepAll:
		return saved
	case KeepProducts:
		made := map[graph.Value]op.Kind{}
		for _, n := range j.Program.Nodes[:j.Forward] {
			for _, v := range n.Out {
				made[v] = n.Kind
			}
		}
		needed := j.RecomputeNeeds()
		return slices.DeleteFunc(needed, func(v graph.Value) bool {
			return made[v] != op.MatMul && made[v] != op.Attention
		})
	}
	return nil
}

func count(list []bool) (n int) {
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}
