package planner

import (
	"spillway/device/sim"
	"spillway/dtype"
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

func (b *target) estimate(c strategy.Choice) (estimate, error) {
	h, err := b.writer.Homes(c)
	if err != nil {
		return estimate{}, err
	}
	seconds, err := b.lowerBound(b.allowed(c), h.State, h.Offloaded)
	return estimate{h.Plan, seconds}, err
}

// blockCost is how long a block computes per micro-batch.
type blockCost struct {
	forth float64 // before its gradient is begun; for the last block, which does both at once, all of it
	back  float64
}

func (b *target) blockCost(block int, level strategy.Level) (cost blockCost, err error) {
	key := b.blockKey(block, level)
	if cost, ok := b.costs[key]; ok {
		return cost, nil
	}
	first := forwardOnly
	switch {
	case b.training() && key.last:
		first = ForwardBackward
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
func (b *target) phaseSeconds(block int, ph phase, level strategy.Level) (float64, error) {
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

// updateTime is how long the update of a slab takes.
type updateTime struct{ device, host float64 }

// updates are the times of all slabs.
func (b *target) updateSeconds() ([]updateTime, error) {
	if b.updateTimes != nil || !b.training() {
		return b.updateTimes, nil
	}
	b.updateTimes = make([]updateTime, len(b.slabs.list))
	device, host := b.site.timing(), sim.NewTiming(b.site.CPU, dtype.F32)
	for k := range b.slabs.list {
		err := b.eachUpdate(&b.slabs.list[k], func(call op.Call) {
			t := &b.updateTimes[k]
			t.device += device.Time(call).Seconds()
			t.host += host.Time(call).Seconds()
		})
		if err != nil {
			return nil, err
		}
	}
	return b.updateTimes, nil
}
