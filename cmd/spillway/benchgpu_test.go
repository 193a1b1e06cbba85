package main

import (
	"context"
	"math"
	"strings"
	"testing"

	"spillway/plan"
	"spillway/probe"
)

// The bound is the slowest of arithmetic and both ways of the link, at measured rates.
func TestGPURowsAreHeldToBounds(t *testing.T) {
	rates := probe.Rates{In: 50e9, Out: 25e9}
	rates.Compute.BF16 = 100e12
	for want, f := range map[string]plan.Forecast{
		"arithmetic": {Flops: 100e12, BytesIn: 10e9, BytesOut: 10e9, StepSeconds: 1.25},
		"link in":    {Flops: 1e12, BytesIn: 50e9, BytesOut: 10e9},
		"link out":   {Flops: 1e12, BytesIn: 10e9, BytesOut: 25e9},
	} {
		row := gpuRow{Seconds: 2}
		row.account(&plan.Plan{Forecast: &f}, rates)
		if row.Bound != want || row.BoundSeconds != 1 || row.Share != 0.5 || row.Forecast != f.StepSeconds {
			t.Errorf("%+v is bound by %s: %v s, a share of %v", f, row.Bound, row.BoundSeconds, row.Share)
		}
	}
}

// Peers on cards are asked for the rows that were measured, and compared.
func TestGPUPeersAreAsked(t *testing.T) {
	o := fakePython(t, `case "$1" in
*torch_offload_forward.py) echo '{"version": "a 1", "results": [{"row": 0, "peer": "accelerate", "seconds": 2}, {"row": 1, "peer": "accelerate", "seconds": 9}]}';;
*) exit 1;;
esac
`)
	short := &gpuRow{Name: forwardShort, Seconds: 0.5, Forecast: 0.6, Driver: 100, DriverPredicted: 102}
	kept := &gpuRow{Name: trainKept, Seconds: 1, Forecast: 1, Driver: 100, DriverPredicted: 99}
	r := &gpuReport{Results: []*gpuRow{short, kept}}
	findPeers(o).onGPU(context.Background(), r, func(string) {})
	r.conclude()
	if short.Ratio["accelerate"] != 4 || len(kept.Theirs) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "torch_train_gpu.py") {
		t.Errorf("%+v, %+v, notes %v", short, kept, r.Notes)
	}
	if math.Abs(r.TimeOff-0.2) > 1e-9 || r.MemoryOff[0] != -0.01 || r.MemoryOff[1] != 0.02 {
		t.Errorf("time off by %v, memory by %v", r.TimeOff, r.MemoryOff)
	}
	var text strings.Builder
	if err := r.write(&text); err != nil || !strings.Contains(text.String(), "accelerate 2.00 s, 4.00×") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

func TestBenchWants(t *testing.T) {
	o := benchOptions{only: "8 GiB,50m"}
	if !o.wants("training of llama-50m") || !o.wants("in 8 GiB") || o.wants("forward") || !(benchOptions{}).wants("forward") {
		t.Error("rows are chosen wrongly")
	}
	if r := command(t, "bench", "gpu"); r.code != exitFailed || !strings.Contains(r.err, errNoCards.Error()) {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}
