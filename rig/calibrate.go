package rig

import (
	"errors"
	"fmt"
	"time"

	"spillway/device"
	"spillway/dtype"
	"spillway/internal/stopwatch"
	"spillway/machine"
	"spillway/op"
	"spillway/units"
)

// calibrationSizes say how much work the measurements of a device are.
type calibrationSizes struct {
	Copy      units.Bytes   // of large copies
	Side      int64         // of square matrices
	Grid      grid          // of the tables
	Sustained time.Duration // how long matmuls run without a pause; 0: not at all
	Brief     bool          // without pauses, only those that GPUs lower their clock for most
	// Host is the CPU, which updates Params params of f32 during copies, more than caches
	// hold; nil: it does not.
	Host   device.Device
	Params int64
	// Report receives what is measured next, Stop says whether to; nil is fine.
	Report func(what string)
	Stop   func() error
}

func (s calibrationSizes) stopped() error {
	if s.Stop == nil {
		return nil
	}
	return s.Stop()
}

func (s calibrationSizes) report(what string) {
	if s.Report != nil {
		s.Report(what)
	}
}

// gpuSizes are large compared with every overhead. Measuring takes a minute or two, longer
// where kernels must be compiled and the fastest algorithms chosen first.
var gpuSizes = calibrationSizes{Copy: 512 * units.MiB, Side: 8192, Grid: gpuGrid, Sustained: 2 * time.Second}

// quickSizes are those of the first run on a computer: some seconds, and little memory, since
// limits on it count from the beginning. There are no tables: calls are measured when a
// forecast asks for them.
var quickSizes = calibrationSizes{Copy: 64 * units.MiB, Side: 4096, Sustained: time.Second, Brief: true}

// MeasureRates measures everything but tables, of which a forecast has no need where it can
// ask the device.
func MeasureRates(dev device.Device, o Options) (machine.Device, error) {
	s := gpuSizes
	s.Grid = grid{}
	return calibrate(dev, o, s)
}

// calibrate measures an open GPU, with the CPU next to it, by work of given sizes, and returns
// what it measured: a device without sizes.
func calibrate(dev device.Device, o Options, s calibrationSizes) (d machine.Device, err error) {
	start := stopwatch.Now()
	s.Report = func(what string) {
		if o.Report != nil {
			o.Report(fmt.Sprintf("%s, %.0f s: %s", dev.Info().Name, stopwatch.Since(start).Seconds(), what))
		}
	}
	s.Stop = o.Stop
	if s.Params, err = o.updateParams(); err != nil {
		return d, err
	}
	if s.Host, err = device.Open(cpuDriver, device.Options{}); err != nil {
		return d, err
	}
	d, err = measureDevice(dev, s)
	return d, errors.Join(err, s.Host.Close())
}

// measurements fill in the figures of a device, in this order. The long matmuls come late
// because they leave the device warm.
var measurements = []struct {
	title   string
	measure func(*machine.Device, device.Device, calibrationSizes) error
}{
	{"copies", measureCopies},
	{"copies during optimizer steps on the CPU", measureHostBandwidth},
	{"matmuls", measureMatmuls},
	{"kernel launches", measureLaunches},
	{"events", measureEvents},
	{"calls of many shapes", measureTables},
	{"sustained matmuls", measureSustained},
	{"the same in " + tf32, measureTF32},
}

// measureDevice measures a device that nobody else uses meanwhile. Figures that the device does
// not have stay zero.
func measureDevice(dev device.Device, s calibrationSizes) (d machine.Device, err error) {
	for _, m := range measurements {
		s.report(m.title)
		if err := s.stopped(); err != nil {
			return d, err
		}
		if err := m.measure(&d, dev, s); err != nil {
			return d, fmt.Errorf("measuring %s of %s: %w", m.title, dev.Info().Name, err)
		}
	}
	return d, nil
}

// matmulRates are the rates that are measured, by the type of the operands.
func matmulRates(c *machine.Compute) map[dtype.Type]*units.Flops {
	return map[dtype.Type]*units.Flops{dtype.F32: &c.F32, dtype.BF16: &c.BF16, dtype.F16: &c.F16}
}

func measureMatmuls(d *machine.Device, dev device.Device, s calibrationSizes) (err error) {
	for t, rate := range matmulRates(&d.Compute) {
		if *rate, err = burstRate(dev, t, s.Side); err != nil {
			return err
		}
	}
	return nil
}

func measureTables(d *machine.Device, dev device.Device, s calibrationSizes) (err error) {
	if len(s.Grid.Sides) == 0 {
		return nil
	}
	d.Tables = machine.Tables{}
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16} {
		if d.Tables[t.String()], err = shapeTables(dev, t, s.Grid, s.Stop); err != nil {
			return fmt.Errorf("in %v: %w", t, err)
		}
	}
	return nil
}

func measureSustained(d *machine.Device, dev device.Device, s calibrationSizes) (err error) {
	if s.Sustained == 0 {
		return nil
	}
	for t, rate := range matmulRates(&d.Sustained) {
		if t == dtype.F32 && s.Brief { // not on matrix units
			continue
		}
		s.report(fmt.Sprintf("sustained matmuls of %v for %v", t, s.Sustained))
		if *rate, err = sustainedRate(dev, t, s.Side, s.Sustained); err != nil {
			return err
		}
	}
	return nil
}

// measureTF32 measures what changes when the device rounds f32 operands, where it can.
func measureTF32(d *machine.Device, dev device.Device, s calibrationSizes) (err error) {
	rounds, can := dev.(device.TF32)
	if !can {
		return nil
	}
	was := rounds.TF32()
	rounds.SetTF32(true)
	defer rounds.SetTF32(was)
	if d.Compute.TF32, err = burstRate(dev, dtype.F32, s.Side); err != nil {
		return err
	}
	if len(s.Grid.Sides) > 0 {
		if d.Tables[tf32], err = shapeTables(dev, dtype.F32, s.Grid, s.Stop); err != nil {
			return err
		}
	}
	if s.Sustained == 0 || s.Brief {
		return nil
	}
	d.Sustained.TF32, err = sustainedRate(dev, dtype.F32, s.Side, s.Sustained)
	return err
}

// measureLaunches measures what one of many small kernels costs: launched one by one, and
// in a captured graph.
func measureLaunches(d *machine.Device, dev device.Device, _ calibrationSizes) (err error) {
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
	d.Launch = time.Second
	for range workTries {
		took, err := w.row(maxLaunches)
		if err != nil {
			return err
		}
		d.Launch = min(d.Launch, took)
	}
	kernel, err := w.captured(d.Launch, capturedLaunches)
	if kernel < d.Launch {
		d.Kernel = kernel
	}
	return err
}

// eventTries is how often events are timed: threads that were just started are slow at first.
const eventTries = 12

// measureEvents measures what the host needs to record an event and to have a queue wait for
// it, and how long it takes until the CPU has noticed the device and the device the CPU.
func measureEvents(d *machine.Device, dev device.Device, s calibrationSizes) (err error) {
	if s.Host == nil {
		return nil
	}
	const signals, handoffs = 256, 16
	var queues [2]device.Queue
	var events [2][handoffs]device.Event // each is recorded once at a time: a GPU only knows its latest record
	for i, on := range []device.Device{dev, s.Host} {
		if queues[i], err = on.Queue("events"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, queues[i].Close()) }()
		for j := range events[i] {
			if events[i][j], err = on.Event(); err != nil {
				return err
			}
		}
	}
	d.Signal, d.Handoff = time.Second, time.Second
	for range eventTries {
		start := stopwatch.Now()
		for range signals / 2 {
			if err := errors.Join(queues[0].Record(events[0][0]), queues[0].Wait(events[0][0])); err != nil {
				return err
			}
		}
		d.Signal = min(d.Signal, stopwatch.Since(start)/signals)
		if err := queues[0].Sync(); err != nil {
			return err
		}
		start = stopwatch.Now()
		for j := range handoffs {
			gpu, cpu := events[0][j], events[1][j]
			if err := errors.Join(queues[0].Record(gpu), queues[1].Wait(gpu), queues[1].Record(cpu), queues[0].Wait(cpu)); err != nil {
				return err
			}
		}
		if err := errors.Join(queues[0].Sync(), queues[1].Sync()); err != nil {
			return err
		}
		d.Handoff = min(d.Handoff, stopwatch.Since(start)/handoffs)
	}
	return nil
}
