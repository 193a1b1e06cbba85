package planner

import (
	"fmt"

	"spillway/op"
	"spillway/plan"
	"spillway/planner/strategy"
)

// glance is what can be said of a choice without writing its plan: the memory that its
// homes take, with what waits for the backward, and the time that its products and
// transfers take alone. The plan takes no less of either.
type estimate struct {
	homes   *plan.Plan // devices and arenas; no buffers, no steps
	seconds float64
}

func (b *blueprint) estimate(c strategy.Choice) (estimate, error) {
	c = b.allowed(c)
	e := &emitter{b: b, c: c, counting: true}
	e.start()
	if err := e.homes(); err != nil {
		return estimate{}, err
	}
	spilled, err := e.countTurnaround()
	if err != nil {
		return estimate{}, err
	}
	seconds, err := b.lowerBound(c, e.state, spilled)
	return estimate{e.p, seconds}, err
}

// eachUpdate visits the calls that update a slab as a whole.
func (b *blueprint) eachUpdate(s *plan.Slab, visit func(op.Call)) error {
	for _, stretch := range b.optimizer.Spans(s, plan.Piece{To: s.Elements}) {
		call, err := b.optimizer.Call(stretch)
		if err != nil {
			return fmt.Errorf("slab %s, params from %s on: %w", s.Name, stretch.Name, err)
		}
		visit(call)
	}
	return nil
}

// costKey is equal for blocks that take the same time.
type costKey struct {
	jointKey
	level         strategy.Level
	last, trained bool
}

func (b *blueprint) costKey(block int, level strategy.Level) costKey {
	return costKey{jointKey{b.model.Blocks[block].Kind, block > b.trained}, level, block == len(b.model.Blocks)-1, block >= b.trained}
}

// blockCost is how long a block computes per micro-batch.
type blockCost struct {
	forth float64 // before its gradient is begun; for the last block, which does both at once, all of it
	back  float64
}

func (b *blueprint) blockCost(block int, level strategy.Level) (cost blockCost, err error) {
	key := b.costKey(block, level)
	if cost, ok := b.costs[key]; ok {
		return cost, nil
	}
	first := forwardOnly
	switch {
	case b.training() && key.last:
		first = both
	case b.training():
		first = forward
	}
	if cost.forth, err = b.phaseSeconds(block, first, level); err != nil {
		return cost, err
	}
	if b.training() && key.trained && !key.last {
		if cost.back, err = b.phaseSeconds(block, backward, level); err != nil {
			return cost, err
		}
	}
	b.costs[key] = cost
	return cost, nil
}

// phaseSeconds is how long one of a block's programs takes.
func (b *blueprint) phaseSeconds(block int, ph phase, level strategy.Level) (float64, error) {
	var fresh []bool
	switch {
	case ph == forward:
		fresh = make([]bool, len(b.model.Blocks[block].Params))
	case b.training():
		fresh = b.allFresh(block)
	}
	l, err := b.program(block, ph, level, fresh)
	if err != nil {
		return 0, err
	}
	return b.seconds(l.Graph), nil
}
