package run

import (
	"spillway/plan"
	"spillway/rig"
)

// DriverPredicted is what the drivers of GPUs are predicted to count when the plan, whose
// kernels were asked for, has its arenas; 0 where there are no GPUs. Bytes.
func DriverPredicted(r *rig.Rig, p *plan.Plan) int64 {
	var pinned int64
	onDevice := make([]int64, len(r.Devices))
	for _, a := range p.Arenas {
		switch {
		case a.Tier == plan.Pinned:
			pinned += a.Bytes
		case a.Tier == plan.OnDevice && a.Device < len(onDevice):
			onDevice[a.Device] += a.Bytes
		}
	}
	return r.Footprint(onDevice, pinned)
}
