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
	"spillway/spec"
)

var (
	host0 = strategy.Place{Tier: plan.OnHost}
	dev0  = strategy.Place{Tier: plan.OnDevice}
	dev1  = strategy.Place{Tier: plan.OnDevice, Device: 1}
	host1 = strategy.Place{Tier: plan.OnHost, Device: 1}
	disk0 = strategy.Place{Tier: plan.OnDisk}
)

// placed makes a place for each of the tiny model's six blocks.
func placed(m *spec.Model, list ...strategy.Place) map[string]strategy.Place {
	places := map[string]strategy.Place{}
	for i, b := range m.Blocks {
		places[b.Name] = list[i]
	}
	return places
}

// checkPlaced reads the plan itself: where each param's bytes are, who runs what.
func checkPlaced(t *testing.T, m *spec.Model, p *plan.Plan, places map[string]strategy.Place) {
	t.Helper()
	slab := map[string]plan.Slab{}
	for _, s := range p.Slabs {
		for _, q := range s.Params {
			slab[q.Name] = s
		}
	}
	owned := map[string]bool{}
	for i, b := range m.Blocks {
		want := places[b.Name]
		for _, id := range b.Params {
			name := m.Params[id].Name
			if owned[name] {
				continue // tied: it rests with the block before
			}
			owned[name] = true
			a := p.Arenas[p.Buffers[slab[name].Weight].Arena]
			onDevice := a.Tier == plan.OnDevice
			if onDevice != (want.Tier == plan.OnDevice) || (a.Tier == plan.OnDisk) != (want.Tier == plan.OnDisk) || onDevice && a.Device != want.Device {
				t.Errorf("%s is stored on %s %s, want %v", name, a.Tier, a.Name, want)
			}
		}
		for _, s := range p.Instructions {
			if s.Verb == plan.Run && s.Block == i && s.Device != want.Device {
				t.Errorf("%s runs on device %d, want %v", b.Name, s.Device, want)
			}
		}
	}
}

// Blocks rest and run where the user puts them, in every task and on one device or
// two, contiguous or not.
func TestPlacesAreHonoured(t *testing.T) {
	for name, list := range map[string][]strategy.Place{
		"all on the device": {dev0, dev0, dev0, dev0, dev0, dev0},
		"all on the host":   {host0, host0, host0, host0, host0, host0},
		"some on the host":  {dev0, host0, dev0, host0, dev0, dev0},
		"some on disk":      {dev0, disk0, host0, disk0, dev0, dev0},
		"two devices":       {dev0, dev0, dev0, dev1, dev1, dev1},
		"back and forth":    {dev1, dev0, dev0, dev1, host0, host1},
		"only the second":   {dev1, dev1, dev1, host1, host1, dev1},
	} {
		for _, config := range []string{tiny.Llama, tiny.Untied} {
			for _, goal := range []planner.Goal{{}, tiny.AdamW(1, false), tiny.AdamW(3, true)} {
				task := graph.Infer
				if goal.Optimizer != nil {
					task = graph.Train
				}
				m := tiny.Model(t, config, graph.Config{MicroBatchSize: 1, Seq: 16, Task: task})
				goal.Constraints.Places = placed(m, list...)
				site := tiny.Site(1 << 20)
				site.Devices, site.Disk = 2, planner.Disk{Budget: 1 << 30, Read: 1e9, Write: 1e9}
				p, err := planner.Make(m, goal, site)
				if err != nil {
					t.Fatalf("%s, %s: %v", name, task, err)
				}
				checkPlaced(t, m, p, goal.Constraints.Places)
			}
		}
	}
}

func TestPlacesAreChecked(t *testing.T) {
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, Task: graph.Infer})
	good := func() map[string]strategy.Place { return placed(m, dev0, dev0, dev0, dev0, dev0, dev0) }
	for _, c := range []struct {
		want   string
		change func(map[string]strategy.Place)
	}{
		{"model.layers.2 has no place", func(p map[string]strategy.Place) { delete(p, "model.layers.2") }},
		{"there are 1", func(p map[string]strategy.Place) { p["lm_head"] = dev1 }},
		{"no block \"model.layers.9\"", func(p map[string]strategy.Place) { p["model.layers.9"] = dev0 }},
		{"disk", func(p map[string]strategy.Place) { p["lm_head"] = strategy.Place{Tier: plan.OnDisk} }},
	} {
		goal := planner.Goal{Constraints: strategy.Constraints{Places: good()}}
		c.change(goal.Constraints.Places)
		if _, err := planner.Make(m, goal, tiny.Site(1<<20)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

// A plan that puts a block elsewhere is found out.
func TestHappened(t *testing.T) {
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, Task: graph.Train})
	p, err := planner.Build(m, tiny.AdamW(1, false), tiny.Site(1<<20), strategy.Uniform(false, false, strategy.SaveAll, 1))
	if err != nil {
		t.Fatal(err)
	}
	for name, i := range map[string]strategy.Constraints{
		"weights": {Weights: plan.OnHost}, "state": {State: plan.OnHost},
		"a block's tier":   {Places: placed(m, dev0, host0, dev0, dev0, dev0, dev0)},
		"a block's device": {Places: placed(m, dev0, dev0, dev0, dev0, dev0, dev1)},
	} {
		if i.SatisfiedBy(m, p) == nil {
			t.Errorf("%s: all is on device 0, and nobody minds", name)
		}
	}
	all := strategy.Constraints{Places: placed(m, dev0, dev0, dev0, dev0, dev0, dev0)}
	if err := all.SatisfiedBy(m, p); err != nil {
		t.Error(err)
	}
}

// What is stored on disk by demand is on disk, all of it.
func TestDemandDisk(t *testing.T) {
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, Task: graph.Train})
	goal, site := tiny.AdamW(1, true), tiny.Site(1<<20)
	goal.Constraints = strategy.Constraints{Weights: plan.OnDisk, State: plan.OnDisk}
	if _, err := planner.Make(m, goal, site); err == nil || !strings.Contains(err.Error(), "no disk tier") {
		t.Errorf("without a disk: %v", err)
	}
	site.Disk = planner.Disk{Budget: 1 << 30, Read: 1e9, Write: 1e9}
	p, err := planner.Make(m, goal, site)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Slabs {
		if p.TierOf(s.Weight) != plan.OnDisk || p.TierOf(s.Pieces[0].State) != plan.OnDisk {
			t.Errorf("%s is stored on %s, its optimizer state on %s", s.Name, p.TierOf(s.Weight), p.TierOf(s.Pieces[0].State))
		}
	}
}

// Ways and host memory that are asked for are taken though others are faster.
func TestDemandAParallelism(t *testing.T) {
	m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, Task: graph.Train})
	for _, way := range strategy.Parallelisms {
		goal := tiny.AdamW(4, false)
		goal.Constraints = strategy.Constraints{Parallelism: way, State: plan.OnHost}
		site := tiny.Site(1 << 20)
		site.Devices = 2
		p, err := planner.Make(m, goal, site)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(p.Strategies, string(way)) {
			t.Errorf("asking for %s gives %q", way, p.Strategy)
		}
		for _, s := range p.Slabs {
			if p.TierOf(s.Pieces[0].State) == plan.OnDevice {
				t.Errorf("%s: the moments of %s are on the device", way, s.Name)
			}
		}
	}
	for _, c := range []struct {
		goal    planner.Goal
		devices int
		want    string
	}{
		{planner.Goal{MicroBatches: 4, Constraints: strategy.Constraints{Parallelism: strategy.Pipeline}}, 2, "without training use model-parallel"},
		{planner.Goal{MicroBatches: 4, Constraints: strategy.Constraints{Parallelism: strategy.ZeRO2}}, 1, "there is one"},
		{planner.Goal{MicroBatches: 1, Constraints: strategy.Constraints{Parallelism: strategy.ZeRO3}}, 2, "give a batch of 2 or more"},
		{planner.Goal{Constraints: strategy.Constraints{Parallelism: "magic"}}, 2, "magic"},
	} {
		site := tiny.Site(1 << 20)
		site.Devices = c.devices
		infer := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, Task: graph.Infer})
		if _, err := planner.Make(infer, c.goal, site); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
