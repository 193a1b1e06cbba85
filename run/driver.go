package run

import (
	"fmt"

	"spillway/device"
	"spillway/plan"
	"spillway/rig"
	"spillway/units"
)

// A limit on a GPU is what its driver counts for the program. Of that, the memory of kernels
// and of the table of page-locked memory is only known when a plan is: a plan that would
// exceed the limit is made again with less memory.

// driverTries is how often a plan is made. The first asks for nearly all kernels.
const driverTries = 4

// withinDriver makes a plan that the driver will count no more for than MaxMemory allows.
func (o Options) withinDriver(make func(Options) (*Run, error)) (*Run, error) {
	for try := 1; ; try++ {
		r, err := make(o)
		if err != nil || o.MaxMemory == "" || o.left != nil {
			return r, err
		}
		more := r.beyondLimit()
		if more <= 0 {
			return r, nil
		}
		if try == driverTries {
			return nil, fmt.Errorf("planning %s: kernels take %v more of the GPU than max memory %s leaves them, also after %d plans; allow more",
				r.Plan.Model, units.Bytes(more), o.MaxMemory, try)
		}
		o.context += more
	}
}

// beyondLimit is how many bytes more the driver is predicted to count than the limit allows,
// of the device where that is most. What is allocated now is another plan's, which this one
// replaces.
func (r *Run) beyondLimit() (most int64) {
	onDevice, pinned := arenaBytes(r.Plan, len(r.Options.On))
	for d, dev := range r.Options.On {
		counted, counts := dev.(device.DriverMemory)
		if !counts || d >= len(r.Plan.Devices) || d >= len(r.site.Budgets) || r.site.Budgets[d] == 0 {
			continue
		}
		var now int64
		if m, meters := dev.(device.Meter); meters {
			now, _ = m.Allocated()
		}
		limit := r.Plan.Devices[d].Budget + r.Plan.Devices[d].Context
		most = max(most, counted.Footprint(onDevice[d], pinned)-now-limit)
	}
	return most
}

// DriverPredicted is what the drivers of GPUs are predicted to count when the plan, whose
// kernels were asked for, has its arenas; 0 where there are no GPUs. Bytes.
func DriverPredicted(r *rig.Rig, p *plan.Plan) int64 {
	onDevice, pinned := arenaBytes(p, len(r.Devices))
	return r.Footprint(onDevice, pinned)
}

// arenaBytes is what a plan allocates on each device, and of page-locked host memory.
func arenaBytes(p *plan.Plan, devices int) (onDevice []int64, pinned int64) {
	onDevice = make([]int64, devices)
	for _, a := range p.Arenas {
		switch {
		case a.Tier == plan.Pinned:
			pinned += a.Bytes
		case a.Tier == plan.OnDevice && a.Device < devices:
			onDevice[a.Device] += a.Bytes
		}
	}
	return onDevice, pinned
}
