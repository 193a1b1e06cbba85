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

// bench generate says how fast texts are made, next to forecasts, to people and to programs.
func TestBenchGenerate(t *testing.T) {
	sandbox(t)
	args := []string{"bench", "generate", "./model", "tiny-llama", "--streams", "1,2", "--context", "32", "--new-tokens", "4"}
	v := command(t, append(args, "--json")...).object(t)
	if rows := at(t, v, "results").([]any); len(rows) != 4 {
		t.Fatalf("%d rows", len(rows))
	} else {
		for _, path := range []string{"prefill.tokens_per_second", "decode.tokens_per_second", "decode.forecast_tokens_per_second", "predicted_peak_bytes", "measured_peak_bytes", "strategy"} {
			at(t, rows[0], path)
		}
		if at(t, rows[0], "model") != "./model" || at(t, rows[2], "dtype") != "bf16" {
			t.Errorf("%v, %v", rows[0], rows[2])
		}
	}
	text := command(t, args...)
	for _, want := range []string{"./model bf16, 2 × 32", "tiny-llama bf16, 1 × 32", "decode, tokens/s", "forecasts"} {
		if !strings.Contains(text.out, want) {
			t.Errorf("%q is not in\n%s%s", want, text.out, text.err)
		}
	}
	for _, c := range []struct{ flags, want string }{
		{"--streams 0", "above 0"}, {"--new-tokens 1", "at least 2"}, {"--seed 3", "--random"}, {"--random 2 --context 9", "no effect"}, {"x --random 2", "no effect"},
		{"--dtype nf4", "--dtype"}, {"--cache-type x", "--cache-type"}, {"no-such-model", "no-such-model"},
	} {
		if r := command(t, append([]string{"bench", "generate"}, strings.Fields(c.flags)...)...); r.code == exitOK || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: %q, want %q", c.flags, r.err, c.want)
		}
	}
}
