// Package probe measures devices that are open and describes them for package
// machine, which drives none itself. What was measured is kept in a folder.
//
// All rates are what large work reaches: copies of many MiB from page-locked memory,
// products of thousands by thousands of random numbers, the best of several tries.
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
	At        time.Time       `json:"at"`
	In        units.Rate      `json:"in"`   // host to device, alone
	Out       units.Rate      `json:"out"`  // device to host, alone
	Both      units.Rate      `json:"both"` // the sum of both ways at once
	Bandwidth units.Rate      `json:"bandwidth"`
	Compute   machine.Compute `json:"compute"`
	Launch    time.Duration   `json:"launch_ns"`
	Latency   time.Duration   `json:"latency_ns"` // of a small copy
	Tables    machine.Tables  `json:"tables,omitempty"`
}

// Sizes say how much work a measurement is.
type Sizes struct {
	Copy units.Bytes // of the large copies
	Side int64       // of the square matrices
	Grid Grid        // of the tables
}

// Usual are sizes for cards: large against every overhead, seconds in all.
var Usual = Sizes{Copy: 512 * units.MiB, Side: 8192, Grid: UsualGrid}

// Measure measures a device that nobody else uses meanwhile.
func Measure(dev device.Device, s Sizes) (r Rates, err error) {
	r.At = time.Now().UTC().Truncate(time.Second)
	if err := r.measureCopies(dev, int64(s.Copy)); err != nil {
		return r, fmt.Errorf("measuring copies of %s: %w", dev.Info().Name, err)
	}
	for t, rate := range map[dtype.Type]*units.Flops{dtype.F32: &r.Compute.F32, dtype.BF16: &r.Compute.BF16, dtype.F16: &r.Compute.F16} {
		if *rate, err = Product(dev, t, s.Side); err != nil {
			return r, err
		}
	}
	if r.Launch, err = launch(dev); err != nil {
		return r, err
	}
	r.Tables = machine.Tables{}
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16} {
		if r.Tables[t.String()], err = Tables(dev, t, s.Grid); err != nil {
			return r, fmt.Errorf("measuring tables of %v on %s: %w", t, dev.Info().Name, err)
		}
	}
	return r, nil
}

// largeSpan is how long the launches of a large call take together.
const largeSpan = 10 * time.Millisecond

// Time is how long a call on random operands takes, one of several in a row.
func Time(dev device.Device, call op.Call) (time.Duration, error) { return timed(dev, call, largeSpan) }

// Product measures the matrix product of a type; 0 where the device has none.
func Product(dev device.Device, t dtype.Type, side int64) (units.Flops, error) {
	call, err := op.Make(op.MatMul, op.Attr{}, of(t, side, side), of(t, side, side))
	if err != nil {
		return 0, err
	}
	best, err := Time(dev, call)
	var none *device.NoKernelError
	if errors.As(err, &none) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("measuring products of %v: %w", t, err)
	}
	return units.Flops(call.Cost().Flops / best.Seconds()), nil
}

// launch is what one of many small kernels costs.
func launch(dev device.Device) (time.Duration, error) {
	call, err := op.Make(op.Scale, op.Attr{Scale: 2}, of(dtype.F32, 64))
	if err != nil {
		return 0, err
	}
	best, err := timed(dev, call, time.Second)
	if err != nil {
		return 0, fmt.Errorf("measuring launches: %w", err)
	}
	return best, nil
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
func (r Rates) duplex() machine.Duplex {
	return min(max(machine.Duplex(r.Both/(r.In+r.Out)), machine.HalfDuplex), machine.FullDuplex)
}

// Device completes what is known of a device by what was measured.
func (r Rates) Device(d machine.Device) machine.Device {
	d.Link.In, d.Link.Out, d.Link.Latency = r.In, r.Out, r.Latency
	if r.Both > 0 {
		d.Link.Duplex = r.duplex()
	}
	d.Bandwidth, d.Launch = r.Bandwidth, r.Launch
	f8 := d.Compute.F8
	d.Compute = r.Compute
	d.Compute.F8 = f8
	d.Tables = r.Tables
	sources := machine.Sources{}
	for key, s := range d.Sources {
		sources[key] = s
	}
	for key, known := range map[string]bool{
		"in": r.In > 0, "out": r.Out > 0, "duplex": r.Both > 0, "latency": r.Latency > 0, "bandwidth": r.Bandwidth > 0, "launch": r.Launch > 0,
		"f32": r.Compute.F32 > 0, "tf32": r.Compute.TF32 > 0, "bf16": r.Compute.BF16 > 0, "f16": r.Compute.F16 > 0,
	} {
		if known {
			sources[key] = machine.Measured
		}
	}
	d.Sources = sources
	return d
}
