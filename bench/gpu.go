package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"

	"spillway/device"
	"spillway/machine"
	"spillway/rig"
)

// GPUReport is what GPU measured: the object of bench gpu --json.
type GPUReport struct {
	GPU       string         `json:"gpu"`
	Machine   string         `json:"machine"` // the GPU and its computer, as --machine takes them
	Rates     machine.Device `json:"rates"`   // measured in this run
	Results   []*GPURow      `json:"results"`
	Host      []*HostRow     `json:"host"`
	Kernels   []*GPUKernel   `json:"kernels"`
	Baselines []string       `json:"baselines"`
	// TimeOff is how far the forecasts of time are off over all results, as a share of the
	// measured time: the median, and the most of nine in ten. MemoryOff is the same of the
	// predicted memory compared with the driver's count: the least, below 0 where the
	// prediction was too low, and the most.
	TimeOff     float64   `json:"time_off_median"`
	TimeOffMost float64   `json:"time_off_nine_in_ten"`
	MemoryOff   []float64 `json:"memory_off_least_and_most"`
	Bits        []string  `json:"bits,omitempty"` // of rows that are the same training run with two plans
	Notes       []string  `json:"notes"`
}

// GPU measures rows on a GPU, and the baselines after them.
func GPU(ctx context.Context, o Options) (r *GPUReport, err error) {
	o.report("measuring the host")
	here, err := rig.Open(o.Device, o.Rig)
	if err != nil {
		return nil, err
	}
	gpu, known := here.Devices[0].(device.Hardware)
	if !known {
		return nil, joinClose(fmt.Errorf("bench gpu needs a GPU: %s", cmp.Or(here.Reason, "--device names none")), here)
	}
	r = &GPUReport{GPU: gpu.Model(), Baselines: []string{}, Notes: []string{}}
	defer watchClock(&r.Notes)()
	if r.Rates, err = benchRates(here, o, o.report); err != nil {
		return r, joinClose(err, here)
	}
	o.report("measuring kernels")
	kernels, err := gpuKernels(28672, 8192, 1<<27)
	if err == nil {
		r.Kernels, err = benchKernels(here.Devices[0], kernels, r.Rates.Bandwidth, o)
	}
	if err != nil {
		return r, joinClose(err, here)
	}
	here.Machine.Devices = slices.Clone(here.Machine.Devices)
	here.Machine.Devices[0] = here.Machine.Devices[0].WithMeasured(r.Rates)
	r.Machine = here.Machine.String()
	if err := here.Close(); err != nil {
		return r, err
	}
	theirs := &baselines{Options: o}
	for _, row := range gpuRows() {
		if !o.wants(row.Name) {
			continue
		}
		o.report(row.Name)
		if err := row.measure(ctx, here, r.Rates); err != nil {
			if ctx.Err() != nil {
				r.Notes = append(r.Notes, "interrupted in "+row.Name)
				r.conclude()
				return r, nil
			}
			r.Notes = append(r.Notes, fmt.Sprintf("%s was not measured: %v", row.Name, err))
			continue
		}
		r.Results = append(r.Results, row)
	}
	if err := r.saveTimeline(o.Timeline); err != nil {
		return r, err
	}
	if o.wants(hostAdam) {
		o.report(hostAdam)
		if err := r.benchHost(ctx, theirs); err != nil {
			return r, err
		}
	}
	theirs.onGPU(ctx, r, o.report)
	r.conclude()
	return r, nil
}

// benchRates measures the GPU, or reads the rates that another run measured.
func benchRates(here *rig.Rig, o Options, report func(string)) (rates machine.Device, err error) {
	if o.Rates == "" {
		return rig.MeasureRates(here.Devices[0], rig.Options{Report: func(what string) { report("measuring " + what) }})
	}
	text, err := os.ReadFile(o.Rates)
	if err != nil {
		return rates, fmt.Errorf("--rates: %w", err)
	}
	var earlier GPUReport
	if err := json.Unmarshal(text, &earlier); err != nil {
		return rates, fmt.Errorf("--rates %s is not an object of bench gpu --json: %w", o.Rates, err)
	}
	if !(earlier.Rates.Link.In > 0) || !(earlier.Rates.Compute.F32 > 0) {
		return rates, fmt.Errorf("--rates %s: the link runs at %v and f32 matmuls at %v; give what bench gpu --json wrote", o.Rates, earlier.Rates.Link.In, earlier.Rates.Compute.F32)
	}
	return earlier.Rates, earlier.Rates.Tables.Check()
}

// conclude compares predictions with measurements.
func (r *GPUReport) conclude() {
	var times []float64
	r.MemoryOff = []float64{}
	least, most := math.Inf(1), math.Inf(-1)
	for _, row := range r.Results {
		row.Ratio = map[string]float64{}
		for baseline, seconds := range row.Theirs {
			row.Ratio[baseline] = seconds / row.Seconds
		}
		times = append(times, math.Abs(row.Forecast-row.Seconds)/row.Seconds)
		off := float64(row.DriverPredicted-row.Driver) / float64(row.Driver)
		least, most = min(least, off), max(most, off)
	}
	r.Bits = r.twins()
	if len(times) > 0 {
		slices.Sort(times)
		r.TimeOff, r.TimeOffMost, r.MemoryOff = times[len(times)/2], times[(len(times)-1)*9/10], []float64{least, most}
	}
}
