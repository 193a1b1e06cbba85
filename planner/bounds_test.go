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

func trained(t *testing.T) *spec.Model {
	t.Helper()
	return tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, Task: graph.Train})
}

// keeps says whether a plan keeps values of any block for its backward.
func keeps(p *plan.Plan) bool {
	for i := range p.Instructions {
		if b, ok := p.Instructions[i].Bound(plan.InSaved, 0); ok && p.Buffers[b.Buffer].Bytes > 0 {
			return true
		}
	}
	return false
}

// away counts the homes of weights and moments that are not on a device.
func offDevice(p *plan.Plan) (n int) {
	for _, s := range p.Slabs {
		for _, home := range []int{s.Weight, s.Pieces[0].State} {
			if p.TierOf(home) != plan.OnDevice {
				n++
			}
		}
	}
	return n
}

// With room for everything, a share that the standard plan exceeds has plans give up
// what the share is about, down to it if that is possible.
func TestSharesOfADevice(t *testing.T) {
	m := trained(t)
	standard, err := planner.Make(m, tiny.AdamW(1, false), tiny.Site(1<<30))
	if err != nil {
		t.Fatal(err)
	}
	all := standard.Peak()[plan.OnDevice]
	if offDevice(standard) > 0 || !keeps(standard) {
		t.Fatalf("the standard plan is %s", standard.Strategy)
	}
	for _, c := range []struct {
		name         string
		bounds       strategy.Bounds
		changes      func(*plan.Plan) bool
		smallestFill float64 // that what the share is about can be brought down to
	}{
		{"activations", strategy.Bounds{SaveBelow: 0.9}, func(p *plan.Plan) bool { return p.Forecast.Flops > standard.Forecast.Flops && offDevice(p) == 0 }, 0.9},
		{"activations, all", strategy.Bounds{SaveBelow: 0.01}, func(p *plan.Plan) bool { return !keeps(p) && offDevice(p) == 0 }, 1},
		{"homes, later", strategy.Bounds{StayBelow: 0.9}, func(p *plan.Plan) bool { return offDevice(p) == 0 }, 0.9},
		{"homes", strategy.Bounds{StayBelow: 0.7}, func(p *plan.Plan) bool { return offDevice(p) > 0 && offDevice(p) < 2*len(p.Slabs) }, 0.7},
		{"homes, all", strategy.Bounds{StayBelow: 0.01}, func(p *plan.Plan) bool { return offDevice(p) == 2*len(p.Slabs) }, 1},
		{"neither", strategy.Bounds{SaveBelow: 1, StayBelow: 1}, func(p *plan.Plan) bool { return p.Peak()[plan.OnDevice] == all }, 1},
	} {
		goal := tiny.AdamW(1, false)
		goal.Bounds = c.bounds
		p, err := planner.Make(m, goal, tiny.Site(all))
		if err != nil {
			t.Fatal(err)
		}
		if fill := float64(p.Peak()[plan.OnDevice]) / float64(all); !c.changes(p) || fill > c.smallestFill {
			t.Errorf("%s: %s fills %.2f of the device", c.name, p.Strategy, fill)
		}
	}
	goal := tiny.AdamW(1, false)
	goal.Bounds.SaveBelow = 0.9
	p, err := planner.Make(m, goal, tiny.Site(all))
	if err != nil || !strings.Contains(p.Reason, "90% of its budget") {
		t.Errorf("the reason is %q, %v", p.Reason, err)
	}
}

// streamedAtOnce is the most copies of weights on a device at once, homes left out.
func streamedAtOnce(p *plan.Plan) (most int) {
	alive := map[int]bool{}
	for i, list := range p.Accesses() {
		switch s := p.Instructions[i]; {
		case s.Verb == plan.Free:
			delete(alive, s.Dst)
		case s.Verb == plan.Move && s.Lane == plan.Out: // on its way home
			delete(alive, s.Src)
			continue
		}
		for _, a := range list {
			if b := p.Buffers[a.Buffer]; b.Class == plan.Weight && !b.Home && p.TierOf(a.Buffer) == plan.OnDevice {
				alive[a.Buffer] = true
			}
		}
		most = max(most, len(alive))
	}
	return most
}

func TestWindowIsTaken(t *testing.T) {
	for _, task := range []graph.Task{graph.Infer, graph.Train} {
		for window := 1; window <= 5; window++ {
			m := tiny.Model(t, tiny.Untied, graph.Config{MicroBatchSize: 1, Seq: 16, Task: task})
			goal := planner.Goal{}
			if task == graph.Train {
				goal = tiny.AdamW(1, false)
			}
			goal.Bounds.Prefetch, goal.Constraints.Weights = window, plan.OnHost
			p, err := planner.Make(m, goal, tiny.Site(1<<30))
			if err != nil {
				t.Fatal(err)
			}
			if n := streamedAtOnce(p); n != window {
				t.Errorf("%s with a window of %d has %d slabs on the device at once", task, window, n)
			}
		}
	}
}

// What stays on the device by demand stays, and what is recomputed is not kept,
// whatever else fits or is faster.
func TestStayOnTheDevice(t *testing.T) {
	m := trained(t)
	stay := strategy.Constraints{Weights: plan.OnDevice, State: plan.OnDevice}
	check := func(i strategy.Constraints, budget int64) (*plan.Plan, error) {
		goal := tiny.AdamW(1, false)
		goal.Constraints = i
		return planner.Make(m, goal, tiny.Site(budget))
	}
	stay.Activations = strategy.Saved
	standard, err := check(stay, 1<<30)
	if err != nil || standard.Strategy != "standard" {
		t.Fatalf("%v, %v", standard, err)
	}
	all := standard.Peak()[plan.OnDevice]
	if _, err := check(stay, all-1); err == nil {
		t.Error("a standard plan was made without room for it")
	}
	stay.Activations = strategy.Recomputed
	p, err := check(stay, 1<<30)
	if err != nil || keeps(p) || offDevice(p) > 0 || !slices.Contains(p.Strategies, "checkpointing") {
		t.Errorf("%v, %v", p, err)
	}
	if p.Peak()[plan.OnDevice] >= all {
		t.Errorf("recomputing takes %d bytes, keeping %d", p.Peak()[plan.OnDevice], all)
	}
	p, err = check(strategy.Constraints{Weights: plan.OnDevice, State: plan.OnHost}, 1<<30)
	if err != nil || offDevice(p) != len(p.Slabs) || !slices.Contains(p.Strategies, "optimizer-offload") {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := check(strategy.Constraints{Activations: "sold"}, 1<<30); err == nil || !strings.Contains(err.Error(), "sold") {
		t.Errorf("%v", err)
	}
	for _, i := range []strategy.Constraints{{Activations: strategy.Recomputed}, {Weights: plan.OnHost}} {
		if i.SatisfiedBy(m, standard) == nil {
			t.Errorf("the standard plan passes for %+v", i)
		}
	}
}

func TestWaysRuledOut(t *testing.T) {
	m := trained(t)
	site := tiny.Site(1 << 30)
	site.Devices = 2
	goal := tiny.AdamW(4, false)
	for range strategy.Parallelisms {
		p, err := planner.Make(m, goal, site)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range goal.Bounds.Without {
			if slices.Contains(p.Strategies, string(w)) {
				t.Errorf("without %q the plan is %q", goal.Bounds.Without, p.Strategy)
			}
		}
		next := map[bool]strategy.Parallelism{true: strategy.ZeRO2, false: strategy.Pipeline}[len(goal.Bounds.Without) == 0]
		goal.Bounds.Without = append(goal.Bounds.Without, next)
	}
	goal.Constraints.Parallelism = strategy.Pipeline
	if _, err := planner.Make(m, goal, site); err == nil || !strings.Contains(err.Error(), "ruled out") {
		t.Errorf("%v", err)
	}
	for _, b := range []strategy.Bounds{{SaveBelow: 1.5}, {StayBelow: -1}, {Prefetch: -2}} {
		goal := tiny.AdamW(1, false)
		goal.Bounds = b
		if _, err := planner.Make(m, goal, site); err == nil {
			t.Errorf("%+v is accepted", b)
		}
	}
}
