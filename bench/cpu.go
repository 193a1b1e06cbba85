package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"spillway/device/cpu/kernel"
	"spillway/rig"
)

// CPUReport is what CPU measured: the object of bench cpu --json.
type CPUReport struct {
	CPU       string    `json:"cpu"`
	Kernels   string    `json:"kernels"` // the path in use: avx512, avx2 or portable
	Threads   int       `json:"threads"`
	Peak      float64   `json:"peak_gflops"`     // multiply-adds of all threads in registers
	Memory    float64   `json:"memory_gb_per_s"` // reading four streams and writing three of them, as AdamW does
	Baselines []string  `json:"baselines"`       // that answered, with their versions
	Results   []*CPURow `json:"results"`
	Notes     []string  `json:"notes"`
}

// CPURow is one thing measured.
type CPURow struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Ours  float64 `json:"ours"`
	Share float64 `json:"share_of_peak"`
	// Theirs are the figures of the baselines in the same unit; Ratio is ours over theirs.
	Theirs map[string]float64 `json:"theirs"`
	Ratio  map[string]float64 `json:"ratio"`

	measure func() (float64, error) // our figure, once
	memory  bool                    // limited by memory, not by arithmetic
	done    float64                 // share of the counted operations that are really computed; 0 for all
}

// IsCPU says that a device of Options is the CPU, with options of its own or without.
func IsCPU(name string) bool {
	return name == "cpu" || strings.HasPrefix(name, "cpu:") || strings.HasPrefix(name, "cpu,")
}

// CPU measures the CPU, in turns with the baselines.
func CPU(ctx context.Context, o Options) (r *CPUReport, err error) {
	o.report("measuring copies and matmuls")
	fresh := o.Rig
	fresh.Calibrate = true
	at, err := rig.Open(cmp.Or(o.Device, "cpu"), fresh)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	rows, close, err := cpuRows(at.Devices[0], at.Machine, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, close()) }()
	r = &CPUReport{CPU: at.Machine.Host.CPU, Kernels: kernel.Name(), Threads: runtime.GOMAXPROCS(0), Results: rows, Baselines: []string{}, Notes: []string{}}
	defer watchClock(&r.Notes)()
	theirs := baselines{Options: o}
	for round := range o.Rounds {
		r.Peak = max(r.Peak, registerPeak())
		if slices.ContainsFunc(rows, func(row *CPURow) bool { return row.memory }) {
			peak, err := memoryPeak()
			if err != nil {
				return nil, err
			}
			r.Memory = max(r.Memory, peak)
		}
		for _, row := range rows {
			o.report(fmt.Sprintf("round %d of %d: %s", round+1, o.Rounds, row.Name))
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			figure, err := row.measure()
			if err != nil {
				return nil, fmt.Errorf("measuring %s: %w", row.Name, err)
			}
			row.Ours = max(row.Ours, figure)
		}
		theirs.once(ctx, r, func(name string) { o.report(fmt.Sprintf("round %d of %d: %s", round+1, o.Rounds, name)) })
	}
	r.conclude()
	return r, nil
}

// conclude turns figures into shares and ratios.
func (r *CPUReport) conclude() {
	for _, i := range r.Results {
		peak := r.Peak
		if i.memory {
			peak = r.Memory
		}
		i.Share = i.Ours * cmp.Or(i.done, 1) / peak
		i.Ratio = map[string]float64{}
		for baseline, theirs := range i.Theirs {
			i.Ratio[baseline] = i.Ours / theirs
		}
	}
}
