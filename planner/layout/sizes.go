package layout

import (
	"slices"

	"spillway/graph"
	"spillway/op"
	"spillway/planner/strategy"
)

// ResultBytes is the size of what the last block gives: the loss, or logits.
func (l *Layout) ResultBytes() int64 {
	p := l.Model.Program(len(l.Model.Blocks) - 1)
	return p.Type(p.Outputs[0].Value).Bytes()
}

// CacheTypes are what a block stores between steps of generation, by index.
func (l *Layout) CacheTypes(block int) (list []op.Type) {
	p := l.Model.Program(block)
	for _, port := range graph.Ports(p.Inputs, graph.Cache) {
		list = append(list, p.Type(port.Value))
	}
	return list
}

// HasMaster says whether the weights of a slab have a master copy in f32.
func (l *Layout) HasMaster(k int) bool {
	return l.Optimizer != nil && l.Optimizer.HasMaster(l.Slabs.List[k].TrainedType())
}

// GradBytes is the size of the gradient of a slab.
func (l *Layout) GradBytes(k int) int64 {
	s := &l.Slabs.List[k]
	return l.Optimizer.GradTypeOf(s.TrainedType()).Bytes(s.Elements)
}

// AllFresh marks all gradients of a block as written for the first time in an iteration.
func (l *Layout) AllFresh(block int) []bool {
	return slices.Repeat([]bool{true}, len(l.Model.Blocks[block].Params))
}

// InSlab marks the params of a block that are trained and in a slab.
func (l *Layout) InSlab(block, k int) []bool {
	in := make([]bool, len(l.Model.Blocks[block].Params))
	for i, id := range l.Model.Blocks[block].Params {
		in[i] = l.Slabs.Place[id].Slab == k && !l.Model.Params[id].Frozen
	}
	return in
}

// BlockKey is equal for blocks that take the same time and memory at a level.
type BlockKey struct {
	jointKey
	level         strategy.Level
	Last, Trained bool
}

func (l *Layout) BlockKey(block int, level strategy.Level) BlockKey {
	return BlockKey{jointKey{l.Model.Blocks[block].Kind, block > l.FirstTrained}, level, block == len(l.Model.Blocks)-1, block >= l.FirstTrained}
}
