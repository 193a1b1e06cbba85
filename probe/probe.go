// Package probe measures devices that are open and describes them for package
// machine, which drives none itself. What was measured is kept in a folder.
//
// Rates are what large work reaches: copies of many MiB from page-locked memory, products of
// thousands by thousands of random numbers, the best of several tries. Tables are of calls of
// many sizes, without what handing small ones over takes.
package probe

import (
	"errors"
	"fmt"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/machine"
	"spillway/op"
	"spillway/units"
)

// Rates are what was measured of a device. Zero means that it has no such thing.
type Rates struct {
	At   time.Time  `json:"at"`
	In   units.Rate `json:"in"`   // host to device, alone
	Out  units.Rate `json:"out"`  // device to host, alone
	Both units.Rate `json:"both"` // the sum of both ways at once
	// Traffic is all that the host's memory carries while both ways are busy and its
	// processor updates; zero in files that are older than this.
	HostBandwidth units.Rate      `json:"traffic,omitempty"`
	Bandwidth     units.Rate      `json:"bandwidth"`
	Compute       machine.Compute `json:"compute"`
	// Lasting is Compute in work without pauses; zero in files that are older than this.
	Sustained machine.Compute `json:"lasting,omitzero"`
	Launch    time.Duration   `json:"launch_ns"`
	// Kernel is what a small kernel takes that need not be handed over; zero where that is as
	// long, and in files that are older than this.
	Kernel  time.Duration  `json:"kernel_ns,omitempty"`
	Latency time.Duration  `json:"latency_ns"` // of a small copy
	Tables  machine.Tables `json:"tables,omitempty"`
}

// Sizes say how much work a measurement is.
type Sizes struct {
	Copy units.Bytes // of the large copies
	Side int64       // of the square matrices
	Grid Grid        // of the tables
	// Lasting is how long products are watched that follow each other without a pause; 0:
	// not at all.
	Sustained time.Duration
	// Host is the host's processor, which updates so many params of f32 beside copies: more
	// than caches hold. nil: it does not.
	Host   device.Device
	Params int64
	// Tell is told what is measured next; nil tells nobody.
	Report func(what string)
}

func (s Sizes) report(what string) {
	if s.Report != nil {
		s.Report(what)
	}
}

// Usual are sizes for cards: large against every overhead. Measuring takes a minute or two,
// the longer where kernels must be compiled and their ways chosen first.
var GPUSizes = Sizes{Copy: 512 * units.MiB, Side: 8192, Grid: GPUGrid, Sustained: 2 * time.Second}

// Measure measures a device that nobody else uses meanwhile.
func Measure(dev device.Device, s Sizes) (r Rates, err error) {
	r.At = time.Now().UTC().Truncate(time.Second)
	s.report("copies")
	if err := r.measureCopies(dev, int64(s.Copy)); err != nil {
		return r, fmt.Errorf("measuring copies of %s: %w", dev.Info().Name, err)
	}
	s.report("copies beside updates")
	if err := r.measureHostBandwidth(dev, s); err != nil {
		return r, fmt.Errorf("measuring copies of %s beside updates of %d params: %w", dev.Info().Name, s.Params, err)
	}
	s.report("products")
	for t, rate := range matmulRates(&r.Compute) {
		if *rate, err = Matmul(dev, t, s.Side); err != nil {
			return r, err
		}
	}
	if err := r.measureLaunches(dev); err != nil {
		return r, fmt.Errorf("measuring launches: %w", err)
	}
	r.Tables = machine.Tables{}
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16} {
		s.report(fmt.Sprintf("calls of many sizes in %v", t))
		if r.Tables[t.String()], err = Tables(dev, t, s.Grid); err != nil {
			return r, fmt.Errorf("measuring tables of %v on %s: %w", t, dev.Info().Name, err)
		}
	}
	return r, r.measureSustained(dev, s)
}

// measureLasting comes last: it leaves the device warm.
func (r *Rates) measureSustained(dev device.Device, s Sizes) (err error) {
	for t, rate := range matmulRates(&r.Sustained) {
		if s.Sustained == 0 {
			return nil
		}
		s.report(fmt.Sprintf("products of %v for %v", t, s.Sustained))
		if *rate, err = Sustained(dev, t, s.Side, s.Sustained); err != nil {
			return err
		}
	}
	return nil
}

// products are the rates that are measured, by the type of the operands.
func matmulRates(c *machine.Compute) map[dtype.Type]*units.Flops {
	return map[dtype.Type]*units.Flops{dtype.F32: &c.F32, dtype.BF16: &c.BF16, dtype.F16: &c.F16}
}

// largeSpan is how long the launches of a large call take together.
const largeSpan = 10 * time.Millisecond

// Time is how long a call on random operands takes, one of several in a row.
func Time(dev device.Device, call op.Call) (time.Duration, error) { return timed(dev, call, largeSpan) }

// measureLaunches measures what one of many small kernels costs, handed over one by one and
// noted to be repeated.
func (r *Rates) measureLaunches(dev device.Device) (err error) {
	call, err := op.Make(op.Scale, op.Attr{Scale: 2}, of(dtype.F32, 64))
	if err != nil {
		return err
	}
	b, err := newBench(dev)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	w, err := b.prepare(call)
	if err != nil {
		return err
	}
	r.Launch = time.Second
	for range workTries {
		took, err := w.row(maxLaunches)
		if err != nil {
			return err
		}
		r.Launch = min(r.Launch, took)
	}
	kernel, err := w.withoutLaunches(r.Launch)
	if kernel < r.Launch {
		r.Kernel = kernel
	}
	return err
}

// timed is how long a call takes on a bench of its own.
func timed(dev device.Device, call op.Call, span time.Duration) (took time.Duration, err error) {
	b, err := newBench(dev)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return b.time(call, span)
}

// duplex of the link. Noise takes no measurement out of the range that links have.
func (r Rates) bidirectional() machine.Bidirectional {
	return min(max(machine.Bidirectional(r.Both/(r.In+r.Out)), machine.HalfDuplex), machine.FullDuplex)
}

// Device completes what is known of a device by what was measured.
func (r Rates) Device(d machine.Device) machine.Device {
	d.Link.In, d.Link.Out, d.Link.Latency = r.In, r.Out, r.Latency
	if r.Both > 0 {
		d.Link.Bidirectional = r.bidirectional()
	}
	if r.HostBandwidth > 0 {
		d.Link.HostBandwidth = r.HostBandwidth
	}
	d.Bandwidth, d.Launch, d.Kernel = r.Bandwidth, r.Launch, r.Kernel
	f8 := d.Compute.F8
	d.Compute, d.Sustained = r.Compute, r.Sustained
	d.Compute.F8 = f8
	d.Tables = r.Tables
	sources := machine.Sources{}
	for key, s := range d.Sources {
		sources[key] = s
	}
	for key, known := range map[string]bool{
		"in": r.In > 0, "out": r.Out > 0, "duplex": r.Both > 0, "latency": r.Latency > 0, "traffic": r.HostBandwidth > 0, "bandwidth": r.Bandwidth > 0, "launch": r.Launch > 0, "kernel": r.Kernel > 0,
		"f32-lasting": r.Sustained.F32 > 0, "tf32-lasting": r.Sustained.TF32 > 0, "bf16-lasting": r.Sustained.BF16 > 0, "f16-lasting": r.Sustained.F16 > 0,
		"f32": r.Compute.F32 > 0, "tf32": r.Compute.TF32 > 0, "bf16": r.Compute.BF16 > 0, "f16": r.Compute.F16 > 0,
	} {
		if known {
			sources[key] = machine.Measured
		}
	}
	d.Sources = sources
	return d
}
