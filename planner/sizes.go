package planner

import (
	"fmt"

	"spillway/op"
	"spillway/plan"
	"spillway/planner/strategy"
)

// resultBytes is what the output of the last block takes.
func (b *Layout) resultBytes() int64 {
	p := b.model.Program(len(b.model.Blocks) - 1)
	return p.Type(p.Outputs[0].Value).Bytes()
}

// hasMaster says whether the weights of a slab have a copy at full precision.
func (b *Layout) hasMaster(k int) bool {
	return b.optimizer != nil && b.optimizer.HasMaster(b.slabs.list[k].TrainedType())
}

// gradBytes is what the gradient of a slab takes.
func (b *Layout) gradBytes(k int) int64 {
	s := &b.slabs.list[k]
	return b.optimizer.GradTypeOf(s.TrainedType()).Bytes(s.Elements)
}

// allFresh marks all gradients of a block as written for the first time.
func (b *Layout) allFresh(block int) []bool {
	fresh := make([]bool, len(b.model.Blocks[block].Params))
	for i := range fresh {
		fresh[i] = true
	}
	return fresh
}

// inSlab tells, by param port of a block, which are trained in a slab.
func (b *Layout) inSlab(block, k int) []bool {
	in := make([]bool, len(b.model.Blocks[block].Params))
	for i, id := range b.model.Blocks[block].Params {
		in[i] = b.slabs.Place[id].slab == k && !b.model.Params[id].Frozen
	}
	return in
}

// mostCarries is how many values a block hands to the next at most.
func (b *Layout) countCarries() int {
	most := 1
	for _, k := range b.model.Kinds {
		most = max(most, len(k.Program.Outputs))
	}
	return most
}

// eachUpdate visits the calls that update a slab as a whole.
func (b *Layout) eachUpdate(s *plan.Slab, visit func(op.Call)) error {
	for _, stretch := range b.optimizer.Spans(s, plan.Piece{To: s.Elements}) {
		call, err := b.optimizer.Call(stretch)
		if err != nil {
			return fmt.Errorf("slab %s, params from %s on: %w", s.Name, stretch.Name, err)
		}
		visit(call)
	}
	return nil
}

// blockKey is equal for blocks that take the same time.
type blockKey struct {
	jointKey
	level         strategy.Level
	last, trained bool
}

func (b *Layout) blockKey(block int, level strategy.Level) blockKey {
	return blockKey{jointKey{b.model.Blocks[block].Kind, block > b.FirstTrained}, level, block == len(b.model.Blocks)-1, block >= b.FirstTrained}
}
