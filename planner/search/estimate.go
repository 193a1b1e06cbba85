package search

import (
	"fmt"

	"spillway/device/sim"
	"spillway/dtype"
	"spillway/plan"
	"spillway/planner/layout"
	"spillway/planner/strategy"
)

// estimate is what can be said of a choice without writing its plan: the memory that its homes
// take, with what waits for the backward, and the time that its matmuls and transfers take
// alone. The plan takes no less of either.
type estimate struct {
	homes   *plan.Plan // devices and arenas; no instructions
	seconds float64
}

func (b *target) estimate(c strategy.Choice) (estimate, error) {
	h, err := b.writer.Homes(c)
	if err != nil {
		return estimate{}, err
	}
	c = b.Allowed(c)
	computing, err := b.computing(c)
	moving := b.moving(c, h.State, h.Offloaded)
	return estimate{h.Plan, max(computing.device, moving.links, computing.firstGradient+max(computing.host, moving.afterGradients))}, err
}

// blockCost is how long a block computes per micro-batch.
type blockCost struct {
	forth float64 // its forward; of the last block, which runs both at once, all of it
	back  float64
}

func (b *target) blockCost(block int, level strategy.Level) (cost blockCost, err error) {
	key := b.BlockKey(block, level)
	if cost, ok := b.costs[key]; ok {
		return cost, nil
	}
	first := layout.ForwardOnly
	switch {
	case b.Training() && key.Last:
		first = layout.ForwardBackward
	case b.Training():
		first = layout.Forward
	}
	if cost.forth, err = b.phaseSeconds(block, first, level); err != nil {
		return cost, err
	}
	if b.Training() && key.Trained && !key.Last {
		if cost.back, err = b.phaseSeconds(block, layout.Backward, level); err != nil {
			return cost, err
		}
	}
	b.costs[key] = cost
	return cost, nil
}

// phaseSeconds is how long one of a block's programs takes.
func (b *target) phaseSeconds(block int, ph layout.Phase, level strategy.Level) (float64, error) {
	var fresh []bool
	switch {
	case ph == layout.Forward:
		fresh = make([]bool, len(b.Model.Blocks[block].Params))
	case b.Training():
		fresh = b.AllFresh(block)
	}
	l, err := b.Program(block, ph, level, fresh)
	if err != nil {
		return 0, err
	}
	return b.Seconds(l.Graph), nil
}

// updateTime is how long the update of a slab takes.
type updateTime struct{ device, host float64 }

// updateSeconds are the times of all slabs.
func (b *target) updateSeconds() ([]updateTime, error) {
	if b.updateTimes != nil || !b.Training() {
		return b.updateTimes, nil
	}
	b.updateTimes = make([]updateTime, len(b.Slabs.List))
	device, host := b.Site.Timing(), sim.NewTiming(b.Site.CPU, dtype.F32)
	for k := range b.Slabs.List {
		s, t := &b.Slabs.List[k], &b.updateTimes[k]
		for _, span := range b.Optimizer.Spans(s, plan.Piece{To: s.Elements}) {
			call, err := b.Optimizer.Call(span)
			if err != nil {
				return nil, fmt.Errorf("slab %s, params from %s on: %w", s.Name, span.Name, err)
			}
			t.device += device.Time(call).Seconds()
			t.host += host.Time(call).Seconds()
		}
	}
	return b.updateTimes, nil
}
