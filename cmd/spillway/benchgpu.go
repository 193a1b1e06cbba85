package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"spillway/device"
	"spillway/internal/term"
	"spillway/machine"
	"spillway/rig"
	"spillway/units"
)

// gpuReport is the object of bench gpu --json.
type GPUReport struct {
	GPU       string         `json:"card"`
	Machine   string         `json:"machine"` // the card and its computer, as --machine takes them
	Rates     machine.Device `json:"rates"`   // measured in this run
	Results   []*GPURow      `json:"results"`
	Host      []*HostRow     `json:"host"`
	Kernels   []*GPUKernel   `json:"kernels"`
	Baselines []string       `json:"peers"`
	// Over all results: how far forecasts of time are off, as the median and in nine of ten
	// at most, and how far the driver's count of memory is from what was expected, at worst.
	// Shares of what was measured; memory below 0 was expected too small.
	TimeOff     float64   `json:"time_off_median"`
	TimeOffMost float64   `json:"time_off_nine_in_ten"`
	MemoryOff   []float64 `json:"memory_off_least_and_most"`
	Bits        []string  `json:"bits,omitempty"` // of rows that are one training in two places
	Notes       []string  `json:"notes"`
}

// benchGPU measures rows on a card, and the peers between them.
func benchGPU(ctx context.Context, sh shell, o BenchOptions) (r *GPUReport, err error) {
	line := term.NewLine(sh.err)
	defer line.Done()
	line.Print("looking at the host")
	here, err := sh.open(o.Device, rig.Options{})
	if err != nil {
		return nil, err
	}
	gpu, known := here.Devices[0].(device.Hardware)
	if !known {
		return nil, joinClose(fmt.Errorf("bench gpu needs a GPU: %s", orElse(here.Reason, "--device names none")), here)
	}
	r = &GPUReport{GPU: gpu.Model(), Baselines: []string{}, Notes: []string{}}
	if r.Rates, err = benchRates(here, o, line.Print); err != nil {
		return r, joinClose(err, here)
	}
	line.Print("measuring kernels")
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
	theirs := newBaselines(o)
	for _, row := range gpuRows() {
		if !o.wants(row.Name) {
			continue
		}
		line.Print(row.Name)
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
		line.Print(hostAdam)
		if err := r.benchHost(ctx, theirs); err != nil {
			return r, err
		}
	}
	theirs.onGPU(ctx, r, line.Print)
	r.conclude()
	return r, nil
}

// benchRates measures the card, or reads the rates another bench gpu measured.
func benchRates(here *rig.Rig, o BenchOptions, tell func(string)) (rates machine.Device, err error) {
	if o.Rates == "" {
		return rig.Calibrate(here.Devices[0], rig.Options{Report: func(what string) { tell("measuring " + what) }})
	}
	text, err := os.ReadFile(o.Rates)
	if err != nil {
		return rates, fmt.Errorf("--rates: %w", err)
	}
	var earlier GPUReport
	if err := json.Unmarshal(text, &earlier); err != nil {
		return rates, fmt.Errorf("--rates %s is no object of bench gpu --json: %w", o.Rates, err)
	}
	if !(earlier.Rates.Link.In > 0) || !(earlier.Rates.Compute.F32 > 0) {
		return rates, fmt.Errorf("--rates %s: the link runs at %v and f32 products at %v; give what bench gpu --json wrote", o.Rates, earlier.Rates.Link.In, earlier.Rates.Compute.F32)
	}
	return earlier.Rates, earlier.Rates.Tables.Check()
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// conclude compares what was expected with what was measured.
func (r *GPUReport) conclude() {
	var times []float64
	r.MemoryOff = []float64{}
	least, most := math.Inf(1), math.Inf(-1)
	for _, row := range r.Results {
		row.Ratio = map[string]float64{}
		for peer, seconds := range row.Theirs {
			row.Ratio[peer] = seconds / row.Seconds
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

// write shows the figures to people.
func (r *GPUReport) write(w io.Writer) error {
	var p page
	p.line("bench gpu", "%s", r.GPU)
	p.line("measured", "link %v in, %v out, %v both; bf16 %v, sustained %v; memory %v; launch %v", r.Rates.Link.In, r.Rates.Link.Out, r.Rates.Link.BothWays(),
		r.Rates.Compute.BF16, r.Rates.Sustained.BF16, r.Rates.Bandwidth, r.Rates.Launch)
	p.WriteString("\n")
	var t term.Table
	t.Row("", "ours", "at best", "of bound", "bound by", "useful", "forecast", "arena", "driver, expected", "peers")
	for _, row := range r.Results {
		t.Row(row.Name, seconds(row.Seconds), seconds(row.Best), row.shares(), row.Sustained.By, units.Flops(row.Useful).String(), seconds(row.Forecast), units.Bytes(row.Arena).String(),
			fmt.Sprintf("%v, %v", units.Bytes(row.Driver), units.Bytes(row.DriverPredicted)), row.baselineText())
	}
	t.Write(&p) // a page takes everything
	p.WriteString("\n")
	for _, k := range r.Kernels {
		p.line(k.Name, "%s, %v, %s of a copy within the card", seconds(k.Seconds), k.Rate, percent(k.Share))
	}
	for _, row := range r.Host {
		p.line(row.Name, "%.2f G params/s with %d threads, %s", row.Ours/giga, row.Threads, ratios(row.Ratio))
	}
	if len(r.MemoryOff) == 2 {
		p.line("forecasts", "time off by %s at the median, in nine of ten by %s at most; memory by %+.1f%% to %+.1f%%", percent(r.TimeOff), percent(r.TimeOffMost), 100*r.MemoryOff[0], 100*r.MemoryOff[1])
	}
	if len(r.Bits) > 0 {
		p.list("bits", r.Bits)
	}
	p.list("peers", orNone(r.Baselines))
	if len(r.Notes) > 0 {
		p.list("notes", r.Notes)
	}
	_, err := io.WriteString(w, p.String())
	return err
}
