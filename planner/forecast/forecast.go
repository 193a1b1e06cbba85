// Package forecast says how long an iteration of a plan takes, and what binds: the plan is carried
// out by the executor itself, on virtual devices with the rates of a machine. Whether a short
// iteration is captured as a graph is decided here too, since a forecast shows whether that pays.
//
//	f, err := forecast.Of(p, site)
//	fmt.Println(f.StepSeconds, f.Bound)
//
// Where the device is at hand, Rehearse runs the calls of a plan on it, in their order, and forecasts by that.
package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"spillway/device"
	"spillway/device/sim"
	"spillway/dtype"
	"spillway/executor"
	"spillway/machine"
	"spillway/op"
	"spillway/plan"
	"spillway/planner/goal"
	"spillway/trace"
	"spillway/units"
)

// launchBound is the share of an iteration that launching its kernels must take for capturing
// to be worth it. Below it launches hide behind the kernels before them, and a graph would
// only take memory of the driver. Where launches of each call were not measured, a quarter of
// the time in overhead is about half of it in launching: a matmul takes twice as long to
// launch as a plain kernel, of which the overhead is known.
const launchBound = 0.25

// CaptureIfFaster forecasts a plan whose lanes are ordered, and decides whether its
// iterations are captured as a graph: where the device can, launching takes much of the
// time, and a captured iteration is no slower. It returns the plan that is to be taken.
func CaptureIfFaster(p *plan.Plan, site goal.Site) (*plan.Plan, *plan.Forecast, error) {
	return New(site).CaptureIfFaster(p)
}

// Forecaster makes forecasts for one site, of plans of one layout: what their programs take is found once.
type Forecaster struct {
	site   goal.Site
	joined *executor.Joined
}

// New makes forecasts for a site.
func New(site goal.Site) *Forecaster { return &Forecaster{site, executor.NewJoined()} }

// CaptureIfFaster of a plan.
func (x *Forecaster) CaptureIfFaster(p *plan.Plan) (*plan.Plan, *plan.Forecast, error) {
	site := x.site
	f, err := x.Of(p)
	_, captures := site.Kernels.(device.GraphCapturer)
	can := (captures || site.Device.Kernel > 0) && p.CanCapture() // Kernel: it launches kernels apart from running them
	if err != nil || !can {
		return p, f, err
	}
	launching := max(float64(p.Launches())*site.Device.Launch.Seconds()/f.StepSeconds, f.Busy[launchResource])
	if launching <= launchBound {
		return p, f, nil
	}
	captured := p.Capture()
	replayed, err := x.Of(captured)
	if err != nil || replayed.StepSeconds > f.StepSeconds {
		return p, f, err
	}
	return captured, replayed, nil
}

// Of runs a plan on virtual devices and reports what an iteration among many took.
func Of(p *plan.Plan, site goal.Site) (*plan.Forecast, error) { return New(site).Of(p) }

// Of is Of a plan.
func (x *Forecaster) Of(p *plan.Plan) (*plan.Forecast, error) {
	site := x.site
	s, err := x.simulate(p)
	if err != nil {
		return nil, fmt.Errorf("forecasting: %w", err)
	}
	defer s.executor.Close()
	var began time.Duration
	var none executor.Counters
	if s.executor.PrefetchesBatch() { // of the first iteration the batch comes when it begins
		if began, err = s.iterate(); err != nil {
			return nil, fmt.Errorf("forecasting: %w", err)
		}
		none = s.executor.Counters()
	}
	launched, worked := s.devices[0].Launching(), s.busy()
	first, err := s.iterate()
	if err != nil {
		return nil, fmt.Errorf("forecasting: %w", err)
	}
	f := &plan.Forecast{StepSeconds: (first - began).Seconds(), Busy: map[string]float64{}, PeakBytes: p.Peak(), Flops: flops(p), Input: input(p, site)}
	c := s.executor.Counters()
	f.BytesIn, f.BytesOut = c.BytesIn-none.BytesIn, c.BytesOut-none.BytesOut
	launching := s.devices[0].Launching() - launched
	busy := s.busy()
	var longest time.Duration // that a lane works: no iteration of many is shorter
	for d := range s.devices {
		for lane := range busy[d] {
			busy[d][lane] -= worked[d][lane]
		}
		longest = max(longest, slices.Max(append(slices.Collect(maps.Values(busy[d])), 0)))
	}
	if CarriesOver(p) {
		second, err := s.iterate()
		if err != nil {
			return nil, fmt.Errorf("forecasting: %w", err)
		}
		f.StepSeconds = max(second-first, longest).Seconds()
	}
	if site.Rehearsed != nil && p.Captured {
		f.StepSeconds += site.Rehearsed.Replay.Seconds()
	}
	busiest(f, p, busy, launching)
	f.TokensPerSec = float64(p.MicroBatchSize*p.Seq*int64(p.MicroBatches)) / max(f.StepSeconds, 1e-12)
	return f, nil
}

// Timeline is what each step of an iteration will take and when, by the forecast.
func Timeline(p *plan.Plan, site goal.Site) ([]trace.Event, error) {
	ring := trace.NewRing(len(p.Instructions))
	s, err := New(site).simulate(p)
	if err != nil {
		return nil, fmt.Errorf("forecasting: %w", err)
	}
	defer s.executor.Close()
	prefetches := s.executor.PrefetchesBatch()
	if prefetches { // of the first iteration the batch comes when it begins
		_, err = s.iterate()
	}
	if err == nil {
		err = s.executor.Trace(ring)
	}
	if err == nil {
		_, err = s.iterate()
	}
	if err != nil {
		return nil, fmt.Errorf("forecasting: %w", err)
	}
	if prefetches {
		return trace.FromZero(ring.Events()), nil
	}
	return ring.Events(), nil
}

// simulation is a plan on virtual devices.
type simulation struct {
	executor *executor.Executor
	devices  []*sim.Virtual
}

func (x *Forecaster) simulate(p *plan.Plan) (*simulation, error) {
	s, site := &simulation{}, x.site
	var devices []device.Device
	var host *sim.Virtual
	var others []*sim.Virtual
	for _, d := range p.Devices {
		v := virtual(site, d.Name, p.Cache != nil)
		v.NoScratch, v.OneByOne = true, !p.Captured
		if site.Rehearsed != nil && onDevice(d.Name) {
			v.Passes = site.Rehearsed.Passes
		}
		s.devices, devices = append(s.devices, v), append(devices, v)
		switch d.Name {
		case plan.DiskName:
		case plan.HostName:
			host = v
		default:
			others = append(others, v)
		}
	}
	s.devices[0].ShareLauncher(s.devices[1:])
	if host != nil && site.CPU.Bandwidth > 0 && !site.LooksUpOnly { // the CPU and the devices share the host's memory
		if m, measured := site.CPU.Calls.(withLink); measured && p.Cache != nil {
			host.ShareLink(others, m.LinkShare())
		} else {
			host.ShareHostMemory(others)
		}
	}
	var err error
	s.executor, err = executor.NewTimed(p, devices, x.joined)
	return s, err
}

// busy is how long each lane of each device has worked so far.
func (s *simulation) busy() []map[string]time.Duration {
	list := make([]map[string]time.Duration, len(s.devices))
	for d, v := range s.devices {
		list[d] = v.Busy()
	}
	return list
}

// withLink tells what a link carries of its rate while the CPU computes. Calls of such a CPU were
// measured while the link was busy.
type withLink interface{ LinkShare() float64 }

// iterate carries the plan out once more and says when that has ended: not before, the
// next iteration begins.
func (s *simulation) iterate() (end time.Duration, err error) {
	var late error
	err = s.executor.Iterate(context.Background(), executor.IterationArgs{Meanwhile: func() { late = s.executor.Upload() }})
	if err = errors.Join(err, late); err != nil {
		return 0, err
	}
	for _, v := range s.devices {
		end = max(end, v.WaitedUntil())
	}
	for _, v := range s.devices {
		v.Resume(end)
	}
	return end, nil
}

// CarriesOver says whether copies of an iteration may end in the next.
func CarriesOver(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Instructions, func(s plan.Instruction) bool { return s.CarriesOver })
}

// busiest finds each resource's share of the iteration, of the device that uses it
// most, and the resource that binds.
func busiest(f *plan.Forecast, p *plan.Plan, devices []map[string]time.Duration, launching time.Duration) {
	for d, lanes := range devices {
		for lane, busy := range lanes {
			resource := resources[plan.Lane(lane)]
			switch p.Devices[d].Name {
			case plan.DiskName:
				resource = diskResources[plan.Lane(lane)]
			case plan.HostName:
				resource = hostResource
			}
			if busy == 0 && len(f.Busy) >= len(resources) {
				continue
			}
			f.Busy[resource] = max(f.Busy[resource], busy.Seconds()/max(f.StepSeconds, 1e-12))
		}
	}
	if launching > 0 {
		f.Busy[launchResource] = launching.Seconds() / max(f.StepSeconds, 1e-12)
	}
	for resource, share := range f.Busy {
		if share > f.RooflineShare || share == f.RooflineShare && resource < f.Bound {
			f.RooflineShare, f.Bound = share, resource
		}
	}
}

// resources names what each lane keeps busy.
var resources = map[plan.Lane]string{plan.Compute: "compute", plan.In: "link to device", plan.Out: "link to host"}

const (
	hostResource   = "CPU"
	launchResource = "kernel launches"
)

var diskResources = map[plan.Lane]string{plan.In: "disk read", plan.Out: "disk write"}

// virtual is a device of a plan in virtual time. For a disk, what it takes in is written.
func virtual(s goal.Site, name string, generates bool) *sim.Virtual {
	d, t := described(s, name, generates)
	v := sim.NewVirtual(d, t, 0, s.Alignment)
	if name != plan.DiskName && name != plan.HostName {
		v.Peer = s.Peer
	}
	return v
}

// described is a device of a plan with its rates, and the type that it computes in.
func described(s goal.Site, name string, generates bool) (machine.Device, dtype.Type) {
	d, t := s.Device, s.DType
	switch {
	case name == plan.DiskName:
		d = machine.Device{Link: machine.Link{In: s.Disk.Write, Out: s.Disk.Read, Latency: diskLatency}}
	case name == plan.HostName && s.CPU.Bandwidth > 0:
		if d = s.CPU; !generates { // it updates
			t = dtype.F32
		}
	}
	d.Name = name
	return d, t
}

// CallTimes is how long forecasts have calls take on a device of a plan, each by itself.
func CallTimes(s goal.Site, device string, generates bool) func(op.Call) time.Duration {
	d, t := described(s, device, generates)
	return sim.NewTiming(d, t).Time
}

// diskLatency is the time a copy takes beyond its bytes.
const diskLatency = 100 * time.Microsecond

// input is what the copies of batches take.
func input(p *plan.Plan, site goal.Site) (most plan.Input) {
	on := make([]plan.Input, len(p.Devices))
	for i := range p.Instructions {
		s := &p.Instructions[i]
		if brings := p.BringsNextBatch(s); brings || p.ReadsHostBatch(s) {
			in, bytes := &on[s.Device], p.Buffers[s.Src].Bytes
			in.Bytes, in.Prefetched = in.Bytes+bytes, in.Prefetched || brings
			in.Seconds += (site.Device.Link.In.Time(units.Bytes(bytes)) + site.Device.Link.Latency).Seconds()
		}
	}
	return slices.MaxFunc(on, func(a, b plan.Input) int { return cmp.Compare(a.Seconds, b.Seconds) })
}

// flops of an iteration.
func flops(p *plan.Plan) (sum float64) {
	per := make([]float64, len(p.Programs))
	for i, g := range p.Programs {
		per[i] = g.Graph.Cost().Flops
	}
	for _, s := range p.Instructions {
		if s.Verb == plan.Run {
			sum += per[s.Program]
		}
	}
	return sum
}
