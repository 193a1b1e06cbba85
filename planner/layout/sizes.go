package layout

import (
	"fmt"

	"spillway/op"
	"spillway/plan"
	"spillway/planner/strategy"
)

// resultBytes is what the output of the last block takes.
func (b *Layout) ResultBytes() int64 {
	p := b.Model.Program(len(b.Model.Blocks) - 1)
	return p.Type(p.Outputs[0].Value).Bytes()
}

// hasMaster says whether the weights of a slab have a copy at full precision.
func (b *Layout) HasMaster(k int) bool {
	return b.Optimizer != nil && b.Optimizer.HasMaster(b.Slabs.List[k].TrainedType())
}

// gradBytes is what the gradient of a slab takes.
func (b *Layout) GradBytes(k int) int64 {
	s := &b.Slabs.List[k]
	return b.Optimizer.GradTypeOf(s.TrainedType()).Bytes(s.Elements)
}

// allFresh marks all gradients of a block as written for the first time.
func (b *Layout) AllFresh(block int) []bool {
	fresh := make([]bool, len(b.Model.Blocks[block].Params))
	for i := range fresh {
		fresh[i] = true
	}
	return fresh
}

// inSlab tells, by param port of a block, which are trained in a slab.
func (b *Layout) InSlab(block, k int) []bool {
	in := make([]bool, len(b.Model.Blocks[block].Params))
	for i, id := range b.Model.Blocks[block].Params {
		in[i] = b.Slabs.Place[id].Slab == k && !b.Model.Params[id].Frozen
	}
	return in
}

// mostCarries is how many values a block hands to the next at most.
func (b *Layout) countCarries() int {
	most := 1
	for _, k := range b.Model.Kinds {
		most = max(most, len(k.Program.Outputs))
	}
	return most
}

// eachUpdate visits the calls that update a slab as a whole.
func (b *Layout) EachUpdate(s *plan.Slab, visit func(op.Call)) error {
	for _, stretch := range b.Optimizer.Spans(s, plan.Piece{To: s.Elements}) {
		call, err := b.Optimizer.Call(stretch)
		if err != nil {
			return fmt.Errorf("slab %s, params from %s on: %w", s.Name, stretch.Name, err)
		}
		visit(call)
	}
	return nil
}

// blockKey is equal for blocks that take the same time.
type BlockKey struct {
	jointKey
	level         strategy.Level
	Last, Trained bool
}

func (b *Layout) BlockKey(block int, level strategy.Level) BlockKey {
	return BlockKey{jointKey{b.Model.Blocks[block].Kind, block > b.FirstTrained}, level, block == len(b.Model.Blocks)-1, block >= b.FirstTrained}
}
