package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway"
	"spillway/dtype"
	"spillway/plan"
	"spillway/units"
)

// describeQuantized says whether quantized weights stay on the device or stream to it, and
// what quantization saves; "" where there are none. They are stored and moved packed.
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
	kinds := map[string]bool{}
	maps.Copy(kinds, stay.kinds)
	maps.Copy(kinds, come.kinds)
	kind := strings.Join(slices.Sorted(maps.Keys(kinds)), " and ")
	switch {
	case stay.blocks+come.blocks == 0 || stay.packed+come.packed == stay.plain+come.plain: // the same bits in another order
		return ""
	case come.blocks == 0:
		return fmt.Sprintf("%s weights stay on the device: %v instead of %v in %v", kind, units.Bytes(stay.packed), units.Bytes(stay.plain), job.Options.Precision)
	}
	return fmt.Sprintf("%s weights of %d of %d blocks stream to the device packed: %v per pass instead of %v in %v; the link is %s busy, and %s",
		kind, come.blocks, stay.blocks+come.blocks, units.Bytes(come.packed), units.Bytes(come.plain), job.Options.Precision, percent(p.Forecast.Busy[inLink]), streamingCost(job))
}

// inLink is the planner's name for copies to the device.
const inLink = "link to device"

// streamingCost says whether streaming costs time.
func streamingCost(job *spillway.Run) string {
	d, _ := job.Options.Machine.Device(job.Options.Device)
	if job.Plan.Forecast.Bound == inLink {
		return "it is the bottleneck"
	}
	return resource(job.Plan.Forecast.Bound, d.Shared) + " is the bottleneck, so streaming is hidden"
}

// quantizedWeights counts quantized weights: their bytes packed, and in the precision of the
// run.
type quantizedWeights struct {
	kinds         map[string]bool
	blocks        int
	packed, plain int64
}

func (c *quantizedWeights) add(s plan.Slab, as dtype.Type) {
	some := false
	for _, q := range s.Params {
		if q.Type.DType.Block() {
			if some = true; c.kinds == nil {
				c.kinds = map[string]bool{}
			}
			c.kinds[q.Type.DType.String()] = true
			c.packed, c.plain = c.packed+q.Type.Bytes(), c.plain+as.Bytes(q.Type.Shape.Elements())
		}
	}
	if some {
		c.blocks++
	}
}
