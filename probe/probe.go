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
	"spillway/shape"
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
}

// Sizes say how much work a measurement is.
type Sizes struct {
	Copy units.Bytes // of the large copies
	Side int64       // of the square matrices
}

// Usual are sizes for cards: large against every overhead, seconds in all.
var Usual = Sizes{Copy: 512 * units.MiB, Side: 8192}

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
	r.Launch, err = launch(dev)
	return r, err
}

// Product measures the matrix product of a type; 0 where the device has none.
func Product(dev device.Device, t dtype.Type, side int64) (units.Flops, error) {
	square := op.Type{DType: t, Shape: shape.Shape{side, side}}
	w, err := newWork(dev, op.MatMul, op.Attr{}, square, square)
	var none *device.NoKernelError
	if errors.As(err, &none) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("measuring products of %v: %w", t, err)
	}
	best, err := w.best(5)
	if err := errors.Join(err, w.close()); err != nil {
		return 0, fmt.Errorf("measuring products of %v: %w", t, err)
	}
	cube := float64(side) * float64(side) * float64(side)
	return units.Flops(2 * cube / best.Seconds()), nil
}

// launch is what one of many small kernels costs.
func launch(dev device.Device) (time.Duration, error) {
	w, err := newWork(dev, op.Scale, op.Attr{Scale: 2}, op.Type{DType: dtype.F32, Shape: shape.Of(64)})
	if err != nil {
		return 0, fmt.Errorf("measuring launches: %w", err)
	}
	best, err := w.best(1000)
	return best, errors.Join(err, w.close())
}

// duplexShare of both directions alone is what both at once reach at least on a link
// that counts as duplex.
const duplexShare = 0.75

// Device completes what is known of a device by what was measured.
func (r Rates) Device(d machine.Device) machine.Device {
	d.Link = machine.Link{In: r.In, Out: r.Out, Latency: r.Latency, Duplex: float64(r.Both) > duplexShare*float64(r.In+r.Out)}
	d.Bandwidth, d.Launch = r.Bandwidth, r.Launch
	f8 := d.Compute.F8
	d.Compute = r.Compute
	d.Compute.F8 = f8
	sources := machine.Sources{}
	for key, s := range d.Sources {
		sources[key] = s
	}
	for key, known := range map[string]bool{
		"in": r.In > 0, "out": r.Out > 0, "latency": r.Latency > 0, "bandwidth": r.Bandwidth > 0, "launch": r.Launch > 0,
		"f32": r.Compute.F32 > 0, "tf32": r.Compute.TF32 > 0, "bf16": r.Compute.BF16 > 0, "f16": r.Compute.F16 > 0,
	} {
		if known {
			sources[key] = machine.Measured
		}
	}
	d.Sources = sources
	return d
}
