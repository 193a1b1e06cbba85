package planner

import (
	"context"
	"fmt"
	"time"

	"spillway/device"
	"spillway/device/sim"
	"spillway/executor"
	"spillway/plan"
	"spillway/trace"
)

// forecast carries the plan, whose lanes are ordered, out on virtual devices and
// reports what it took.
func forecast(p *plan.Plan, site Site) (*plan.Forecast, error) {
	e, virtual, err := simulated(p, site, nil)
	if err != nil {
		return nil, fmt.Errorf("forecasting: %w", err)
	}
	f := &plan.Forecast{Busy: map[string]float64{}, PeakBytes: p.Peak(), Flops: flops(p)}
	f.BytesIn, f.BytesOut = e.Counters().BytesIn, e.Counters().BytesOut
	for _, v := range virtual {
		f.StepSeconds = max(f.StepSeconds, v.Elapsed().Seconds())
	}
	busiest(f, p, virtual)
	f.TokensPerSec = float64(p.Rows*p.Seq*int64(p.Micros)) / max(f.StepSeconds, 1e-12)
	return f, nil
}

// Timeline is what each step of an iteration will take and when, by the forecast.
func Timeline(p *plan.Plan, site Site) ([]trace.Event, error) {
	ring := trace.NewRing(len(p.Steps))
	if _, _, err := simulated(p, site, ring); err != nil {
		return nil, fmt.Errorf("forecasting: %w", err)
	}
	return ring.Events(), nil
}

// simulated carries a plan out on virtual devices, and tells its steps to a sink that is
// not nil.
func simulated(p *plan.Plan, site Site, sink trace.Sink) (*executor.Executor, []*sim.Virtual, error) {
	virtual := make([]*sim.Virtual, len(p.Devices))
	devices := make([]device.Device, len(p.Devices))
	for d := range devices {
		virtual[d] = sim.NewVirtual(p.Devices[d].Name, 0, site.Alignment, site.ratesOf(p.Devices[d]))
		virtual[d].NoScratch = true
		devices[d] = virtual[d]
	}
	e, err := executor.New(p, devices)
	if err != nil {
		return nil, nil, err
	}
	defer e.Close()
	if sink != nil {
		if err := e.Trace(sink); err != nil {
			return nil, nil, err
		}
	}
	return e, virtual, e.Iterate(context.Background(), executor.Numbers{})
}

// busiest finds each resource's share of the iteration, of the device that uses it
// most, and the resource that binds.
func busiest(f *plan.Forecast, p *plan.Plan, devices []*sim.Virtual) {
	for d, v := range devices {
		for lane, busy := range v.Busy() {
			resource := resources[plan.Lane(lane)]
			switch p.Devices[d].Name {
			case DiskName:
				resource = diskResources[plan.Lane(lane)]
			case HostName:
				resource = hostResource
			}
			if busy == 0 && len(f.Busy) >= len(resources) {
				continue
			}
			f.Busy[resource] = max(f.Busy[resource], busy.Seconds()/max(f.StepSeconds, 1e-12))
		}
	}
	for resource, share := range f.Busy {
		if share > f.AtBest || share == f.AtBest && resource < f.Bound {
			f.AtBest, f.Bound = share, resource
		}
	}
}

// resources names what each lane keeps busy.
var resources = map[plan.Lane]string{plan.Compute: "compute", plan.In: "link to device", plan.Out: "link to host"}

const hostResource = "host processor"

var diskResources = map[plan.Lane]string{plan.In: "disk read", plan.Out: "disk write"}

// ratesOf a device of a plan. For a disk, what it takes in is written.
func (s Site) ratesOf(d plan.Device) sim.Rates {
	if d.Name == DiskName {
		return sim.Rates{In: s.Disk.Write, Out: s.Disk.Read, Latency: diskLatency}
	}
	if d.Name == HostName && s.Host.Memory > 0 {
		return s.Host
	}
	return s.Rates
}

// diskLatency is the time a copy takes beyond its bytes.
const diskLatency = 100 * time.Microsecond

// flops of an iteration.
func flops(p *plan.Plan) (sum float64) {
	per := make([]float64, len(p.Programs))
	for i, g := range p.Programs {
		per[i] = g.Graph.Cost().Flops
	}
	for _, s := range p.Steps {
		if s.Verb == plan.Run {
			sum += per[s.Program]
		}
	}
	return sum
}
