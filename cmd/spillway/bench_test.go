package main

import (
	"strings"
	"testing"

	"spillway/bench"
)

// Reports show ours next to the baselines, and shares of both rooflines where they differ.
func TestBenchReports(t *testing.T) {
	var p page
	writeCPU(&p, &bench.CPUReport{Peak: 200, Results: []*bench.CPURow{
		{Name: "matmul 1024³", Unit: "GFLOP/s", Ours: 100, Share: 0.5, Theirs: map[string]float64{"PyTorch": 80}, Ratio: map[string]float64{"PyTorch": 1.25}},
	}})
	row := &bench.GPURow{Name: "forward", Seconds: 0.5, Theirs: map[string]float64{"accelerate": 2}, Ratio: map[string]float64{"accelerate": 4}}
	row.Burst, row.Sustained = bench.GPUBound{By: "arithmetic", Share: 0.5}, bench.GPUBound{By: "arithmetic", Share: 0.625}
	writeGPU(&p, &bench.GPUReport{
		Results: []*bench.GPURow{row}, MemoryOff: []float64{-0.01, 0.02},
		Host: []*bench.HostRow{{Name: "AdamW on the CPU", Threads: 16, Ours: 5.5e9, Ratio: map[string]float64{"fused": 1.1}}},
	})
	for _, want := range []string{"1.25×", "accelerate 2.00 s, 4.00×", "5.50 G params/s with 16 threads, 1.10× PyTorch's fused", "50%, sustained 62%", "memory by -1.0% to"} {
		if !strings.Contains(p.String(), want) {
			t.Errorf("%q is not in\n%s", want, p.String())
		}
	}
}
