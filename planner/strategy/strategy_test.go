package strategy_test

import (
	"slices"
	"strings"
	"testing"

	"spillway/planner/strategy"
)

// Every strategy says who it is; those that can be asked for are found by name.
func TestStrategiesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range strategy.All {
		if s.Name == "" || s.Title == "" || s.Doc == "" || s.Describe == nil || seen[s.Name] {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
		if s != strategy.Standard && s.In == nil {
			t.Errorf("%s does not know whether a choice makes use of it", s.Name)
		}
		if s.Spread == nil && s.Lines == nil && s.Variant == nil && !s.OfSteps {
			t.Errorf("%s offers nothing", s.Name)
		}
		found, err := strategy.Find(s.Name)
		if s.Constraints.Any() != (err == nil) || err == nil && found != s {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	want := []string{"standard", "zero-1", "zero-2", "zero-3", "model-parallel", "pipeline", "checkpointing", "optimizer-offload", "cpu-offload", "disk-offload"}
	if got := strategy.Askable(); !slices.Equal(got, want) {
		t.Errorf("%q can be asked for, want %q", got, want)
	}
}

// Plain data parallelism is refused, with what to ask for instead.
func TestDDPIsRefused(t *testing.T) {
	_, err := strategy.Find("ddp")
	if err == nil || !strings.Contains(err.Error(), "zero-1 gives the same numbers in less memory") {
		t.Error(err)
	}
	if _, err := strategy.Find("magic"); err == nil || !strings.Contains(err.Error(), "magic") || !strings.Contains(err.Error(), "cpu-offload") {
		t.Error(err)
	}
}

// A choice is described by what it makes use of, in words and by names.
func TestTitles(t *testing.T) {
	choice := func(change func(*strategy.Choice)) strategy.Choice {
		c := strategy.Uniform(false, false, strategy.SaveAll, 2)(4, 4)
		c.OnDisk, c.UpdatedByCPU, c.OffloadedActivations = make([]bool, 4), make([]bool, 4), make([]bool, 4)
		change(&c)
		return c
	}
	for _, c := range []struct {
		choice strategy.Choice
		names  string
		title  string
	}{
		{choice(func(*strategy.Choice) {}), "standard", "standard"},
		{choice(func(c *strategy.Choice) { c.Devices, c.ShardGradients = 2, true }), "zero-2", "ZeRO-2 on 2 devices"},
		{choice(func(c *strategy.Choice) { c.Level[0] = strategy.SaveMatmuls }), "checkpointing", "selective checkpointing of 1 of 4 blocks"},
		{choice(func(c *strategy.Choice) { c.Level[0], c.Level[1] = strategy.SaveNone, strategy.SaveAttention }), "checkpointing", "checkpointing of 2 of 4 blocks (attention of 1 saved)"},
		{choice(func(c *strategy.Choice) {
			c.Streamed[0], c.OffloadedState[0], c.OffloadedState[1], c.UpdatedByCPU[0], c.OnDisk[1] = true, true, true, true, true
		}), "cpu-offload cpu-update disk-offload", "CPU offload of 1 of 4 parameter buffers, prefetch depth 2, optimizer step on CPU for 1 of 4, disk offload of 1 of 4"},
	} {
		if got := strings.Join(strategy.Names(c.choice), " "); got != c.names || strategy.Title(c.choice) != c.title {
			t.Errorf("%s: %q, want %s: %q", got, strategy.Title(c.choice), c.names, c.title)
		}
	}
}

// Along a line memory falls: the last mix of each does most of what the line is about.
func TestLinesGrow(t *testing.T) {
	for _, f := range []strategy.Facts{
		{Blocks: 5, Slabs: 7, Levels: 3, Devices: 1, MicroBatches: 1, Disk: true},
		{Blocks: 5, Slabs: 7, Levels: 4, Devices: 1, MicroBatches: 1, Training: true, Disk: true, CPUUpdates: true, DelayedUpdates: true},
	} {
		for _, line := range strategy.Candidates(f) {
			for i := range line.Size {
				if a, b := line.Mix(i), line.Mix(i+1); a.Simpler(b) >= 0 {
					t.Errorf("%+v comes before %+v", a, b)
				}
			}
		}
	}
}
