package main

import (
	"fmt"

	"spillway"
	"spillway/dtype"
	"spillway/plan"
	"spillway/units"
)

// describeBase says what becomes of weights in few bits: whether they stay on the device or
// come to it, and what that saves; "" where there are none. They move as they rest, packed.
func describeQuantized(job *spillway.Run) string {
	var stay, come quantizedWeights
	p := job.Plan
	for _, s := range p.Slabs {
		to := &come
		if p.TierOf(s.Weight) == plan.OnDevice {
			to = &stay
		}
		to.add(s, job.Options.Precision)
	}
	kind := max(stay.kind, come.kind)
	switch {
	case stay.blocks+come.blocks == 0:
		return ""
	case come.blocks == 0:
		return fmt.Sprintf("%v weights stay on the device: %v instead of %v in %v", kind, units.Bytes(stay.packed), units.Bytes(stay.plain), job.Options.Precision)
	}
	return fmt.Sprintf("%v weights of %d of %d blocks come to the device when they are needed, packed: %v a pass instead of %v in %v; the link to the device is %s busy and %s",
		kind, come.blocks, stay.blocks+come.blocks, units.Bytes(come.packed), units.Bytes(come.plain), job.Options.Precision, percent(p.Forecast.Busy[inLink]), streamingCost(p))
}

// inLink is the planner's name for the way weights come.
const inLink = "link to device"

// verdict says whether streaming costs time.
func streamingCost(p *plan.Plan) string {
	if p.Forecast.Bound == inLink {
		return "what binds"
	}
	return p.Forecast.Bound + " binds, so that streaming hides behind it"
}

// coded is weights in few bits: bytes as they are, and as they would be otherwise.
type quantizedWeights struct {
	kind          dtype.Type
	blocks        int
	packed, plain int64
}

func (c *quantizedWeights) add(s plan.Slab, as dtype.Type) {
	some := false
	for _, q := range s.Params {
		if q.Type.DType.Block() {
			some, c.kind = true, q.Type.DType
			c.packed, c.plain = c.packed+q.Type.Bytes(), c.plain+as.Bytes(q.Type.Shape.Elements())
		}
	}
	if some {
		c.blocks++
	}
}
