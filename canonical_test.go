package spillway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spillway"
	"spillway/planner/strategy"
)

// With canonical sums a model trains to the same bits within any memory and on any number of
// devices, however they share the work; without, devices that share a gradient round otherwise.
func TestCanonicalSums(t *testing.T) {
	for _, o := range ownModels() {
		t.Run(o.name, func(t *testing.T) {
			trained := func(devices int, canonical bool, change func(*spillway.Config)) (*spillway.Wrapped, []float64, spillway.StateDict) {
				c := several(t, devices)
				c.CanonicalSums, c.MicroBatches, c.Clip = canonical, 4, 0.5
				if change != nil {
					change(&c)
				}
				w := wrap(t, o.net(), c)
				losses := step(t, w, o.batch, 3)
				return w, losses, stateDict(t, w)
			}
			alone, losses, weights := trained(1, true, nil)
			peak := alone.MemoryStats().Devices[0].Predicted
			check := func(name string, devices int, change func(*spillway.Config)) {
				w, got, d := trained(devices, true, change)
				if !slices.Equal(got, losses) || !sameDict(d, weights) {
					t.Errorf("%s on %d devices: %s: losses %v, alone %v; equal weights %v", name, devices, w.Strategy(), got, losses, sameDict(d, weights))
				}
			}
			check("three quarters of the memory", 1, func(c *spillway.Config) { c.MaxMemory = fmt.Sprint(peak * 3 / 4) })
			check("what is fastest", 3, nil)
			for _, s := range []strategy.Parallelism{strategy.ZeRO3, strategy.Pipeline} {
				check(string(s), 2, func(c *spillway.Config) { c.Strategy = string(s) })
			}
			if _, got, d := trained(2, false, func(c *spillway.Config) { c.Strategy = "zero-2" }); sameDict(d, weights) {
				t.Errorf("the same bits without canonical sums: this test shows nothing (losses %v)", got)
			}
		})
	}
}

// The micro-batches of canonical sums follow from the batch alone, and settings that contradict
// them are refused.
func TestCanonicalSumsDoNotDependOnTheMachine(t *testing.T) {
	m, err := spillway.Open("llama-3.2-1b")
	if err != nil {
		t.Fatal(err)
	}
	o := spillway.Options{Task: spillway.Train, BatchSize: 24, Seq: 1024, CanonicalSums: true}
	for _, machine := range []string{"gpu:24GiB@25GB/s,host:256GiB", "3xgpu:80GiB,host:256GiB"} {
		o.Machine = parse(t, machine)
		r, err := m.Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Plan.MicroBatchSize != 8 || r.Plan.MicroBatches != 3 || !strings.Contains(r.Plan.SumOrder(), "canonical: gradients of 8 sequences each") {
			t.Errorf("%s: %d micro-batches of %d sequences, sums %q", machine, r.Plan.MicroBatches, r.Plan.MicroBatchSize, r.Plan.SumOrder())
		}
	}
	for says, change := range map[string]func(*spillway.Options){
		"take zero-2":            func(o *spillway.Options) { o.Strategy = "zero-1" },
		"sums are of gradients":  func(o *spillway.Options) { o.Task = spillway.Infer },
		"cannot be cut into mic": func(o *spillway.Options) { o.MicroBatchSize = 5 },
	} {
		q := o
		change(&q)
		if _, err := m.Plan(q); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
