package planner_test

import (
	"slices"
	"strings"
	"testing"

	"spillway/graph"
	"spillway/internal/tiny"
	"spillway/plan"
	"spillway/planner"
	"spillway/planner/strategy"
)

// Every row holds what a plan made for it alone takes; nothing that fits is faster
// than what the search picks, where that keeps everything on the device by what leaving it
// is worth.
func TestCompare(t *testing.T) {
	for _, devices := range []int{1, 2} {
		for _, budget := range []int64{150 << 10, 400 << 10} {
			r := tinyRequest(t, budget, tiny.AdamW(4, false))
			r.Site.Devices = devices
			list, err := r.Compare()
			if err != nil {
				t.Fatal(err)
			}
			best, _, err := r.Plan()
			if err != nil {
				t.Fatal(err)
			}
			worth := 0.9999
			if !strings.Contains(best.Strategy, "offload") {
				worth = 0.98
			}
			for _, c := range list {
				if c.Fits && (c.Device > budget || c.Seconds < best.Forecast.StepSeconds*worth) {
					t.Errorf("%d devices of %d: %s takes %d bytes and %g s, the plan %g s", devices, budget, c.Strategy, c.Device, c.Seconds, best.Forecast.StepSeconds)
				}
				if c.Fits == (c.Reason != "") || c.Possible && c.Detail == "" {
					t.Errorf("%d devices of %d: %+v", devices, budget, c)
				}
			}
			standard, _, err := r.Standard()
			if err != nil {
				t.Fatal(err)
			}
			if list[0].Strategy != "standard" || list[0].Device != standard.Peak()[plan.OnDevice] || list[0].Fits != (list[0].Device <= budget) {
				t.Errorf("standard: %+v, its plan takes %v", list[0], standard.Peak())
			}
		}
	}
}

// Ways of several devices are ruled out in words.
func TestCompareRulesOut(t *testing.T) {
	possible := func(devices, micros int, train bool) (names []string) {
		goal := planner.Goal{MicroBatches: micros}
		if train {
			goal = tiny.AdamW(micros, false)
		}
		r := tinyRequest(t, 1<<20, goal)
		r.Site.Devices = devices
		list, err := r.Compare()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.Possible {
				names = append(names, c.Name)
			} else if c.Reason == "" || c.Fits {
				t.Errorf("%+v", c)
			}
		}
		return names
	}
	single := []string{"standard", "cpu-offload"}
	trained := []string{"standard", "checkpointing", "activation-offload", "optimizer-offload", "cpu-offload"}
	for _, c := range []struct {
		devices, micros int
		train           bool
		want            []string
	}{
		{1, 4, false, single},
		{1, 4, true, trained},
		{2, 1, true, slices.Insert(slices.Clone(trained), 1, "model-parallel")},
		{2, 4, true, slices.Insert(slices.Clone(trained), 1, "zero-1", "zero-2", "zero-3", "model-parallel", "pipeline")},
		{2, 4, false, slices.Insert(slices.Clone(single), 1, "zero-2", "zero-3", "model-parallel")},
	} {
		if got := possible(c.devices, c.micros, c.train); !slices.Equal(got, c.want) {
			t.Errorf("%d devices, %d micro-batches, training %v: %v, want %v", c.devices, c.micros, c.train, got, c.want)
		}
	}
}

// A preset on a GPU it does not fit: the rows that save most differ by
// what each moves away.
func TestCompareOfAPreset(t *testing.T) {
	r := named(t, "llama-3.2-1b", "gpu:16GiB@25GB/s,host:64GiB", 1, 1024, graph.Train)
	list, err := r.Compare()
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]planner.Compared{}
	for _, c := range list {
		of[c.Name] = c
	}
	// weights bf16, master and two moments f32: 14 bytes per param rest on the device
	const params = 1_235_814_400
	if got := of["standard"].Device; got < 14*params || of["standard"].Fits {
		t.Errorf("standard takes %d bytes, weights and state alone are %d", got, 14*params)
	}
	if c := of["checkpointing"]; c.Fits || c.Device < 14*params {
		t.Errorf("checkpointing keeps %d bytes of weights and state: %+v", 14*params, c)
	}
	if c := of["cpu-offload"]; !c.Fits || c.Host < 12*params {
		t.Errorf("cpu offload has the state on the host: %+v", c)
	}
}

// What fits stays on the device, and off the disk, unless leaving brings something: less than
// what a forecast may be off is not worth it.
func TestWhatFitsStays(t *testing.T) {
	for name, machine := range map[string]string{"gpt2": "gpu:24GiB,host:64GiB,disk:1TiB", "llama-3.2-1b": "gpu:80GiB,host:64GiB,disk:1TiB", "qwen2.5-0.5b": "2xgpu:24GiB,host:64GiB,disk:1TiB"} {
		r := named(t, name, machine, 1, 512, graph.Train)
		p, _, err := r.Plan()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(p.Strategy, "offload") {
			r.Goal.Constraints = strategy.Constraints{Weights: plan.OnDevice, State: plan.OnDevice}
			q, _, err := r.Plan()
			if err != nil || p.Forecast.StepSeconds > 0.98*q.Forecast.StepSeconds {
				t.Errorf("%s: %s takes %v s, %v", name, p.Strategy, p.Forecast.StepSeconds, err)
			}
		}
	}
}

// Where attention has a level of its own, the rows that recompute still go down to nothing
// saved: levels come from one list.
func TestCompareRecomputesEverything(t *testing.T) {
	r := named(t, "llama-3.2-1b", "gpu:4GiB@25GB/s,host:64GiB", 1, 8192, graph.Train)
	list, err := r.Compare()
	if err != nil {
		t.Fatal(err)
	}
	peak := func(level strategy.Level) int64 {
		m, err := r.Trace(r.MicroBatchSize, r.Seq)
		if err != nil {
			t.Fatal(err)
		}
		site := r.Site
		site.Budget = 1 << 40
		p, err := planner.Build(m, r.Goal, site, strategy.Uniform(false, false, level, 0))
		if err != nil {
			t.Fatal(err)
		}
		return p.Peak()[plan.OnDevice]
	}
	if peak(strategy.SaveNone) >= peak(strategy.SaveAttention) {
		t.Fatal("saving nothing takes no less than saving attention's outputs")
	}
	for _, c := range list {
		if c.Name == "checkpointing" && (c.Fits || c.Device != peak(strategy.SaveNone)) {
			t.Errorf("checkpointing takes %d bytes at least, with nothing saved it takes %d", c.Device, peak(strategy.SaveNone))
		}
	}
}
